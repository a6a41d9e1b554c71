"""Turn text into batches: cleaning, segmentation, vocabulary, dataset folders, known corpora, the toy corpus.

Independent of models. Others use `dataset.Dataset`, `vocabulary.Language`, `batches.Batches` and `prepare.prepare`.
"""
