"""The neural networks: the Transformer, whose decoder sees the source as far as `reads`, its caches, and the agent.

This package knows no policies. Its main entry points are `transformer.Translator`, `agent.Agent` and
`checkpoint.load_run`.
"""
