"""Translating under any policy: the read/write loop, its CUDA-graph form, forced decoding.

Knows units, not words, and nothing of scores. Others use `batched.translate` and `batched.forced_reads`.
`reference` holds the slow obvious versions that tests compare with.
"""
