"""The CPU engine: ONNX export, the runtime that runs an export without PyTorch, and bundles to ship a run.

`runtime` and `engine_cache` import no PyTorch. Others use `runtime.load_exported` and `export.export`.
"""
