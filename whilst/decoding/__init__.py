"""Translating under any policy: the read/write loop, its CUDA-graph form, forced decoding; offline models.

Knows units, not words, and nothing of scores. Others use `batched.translate` and `batched.forced_reads`.
`offline` makes models of whole sentences simultaneous, `pretrained` opens those of the Hugging Face hub.
"""
