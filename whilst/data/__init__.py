"""From text to batches: cleaning, segmentation, vocabulary, dataset folders; known corpora, the toy language.

Knows no model. Others use `dataset.Dataset`, `vocabulary.Language`, `batches.Batches` and `prepare.prepare`.
"""
