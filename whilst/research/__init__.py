"""Studies of trained models: analyses, sufficiency, benchmarks, and the document that compares with the paper.

Only the commands import this package.
"""
