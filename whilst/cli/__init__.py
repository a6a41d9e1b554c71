"""The commands. Each one reads its options, calls one function, and says where the result is.

Packages with heavy imports are imported inside the commands, so that `--help` is fast.
"""
