"""The CPU engine: ONNX export, the runtime that runs an export without PyTorch, and bundles to ship a run.

`runtime` imports no PyTorch. The main functions are `runtime.load_exported` and `export.export`.
"""
