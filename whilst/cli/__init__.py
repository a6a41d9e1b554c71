"""The commands of the program `whilst`. Each command reads its options and calls one function.

Packages that are slow to import are imported inside the commands, so that `--help` takes a fraction of a second.
"""
