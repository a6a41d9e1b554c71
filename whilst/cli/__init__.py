"""The commands. Each one reads its options and calls one function.

Everything slow to import is imported inside the commands, so that `--help` takes a fraction of a second.
"""
