"""Studies of trained models rather than uses of them: analyses, sufficiency, the document of the paper, benchmarks.

A leaf: only the commands import it.
"""
