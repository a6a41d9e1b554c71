"""Decoding under any policy: the read/write loop, the same in CUDA graphs, forced decoding, and offline models.

This package works on units, not words, and computes no scores. Its main functions are `batched.translate` and
`batched.forced_reads`. `offline` translates simultaneously with full-sentence models; `pretrained` loads such
models from the Hugging Face hub.
"""
