"""The Transformer whose decoder sees the source through `reads`, its caches, monotonic attention, the agent.

Knows no policy. Others use `transformer.Translator`, `agent.Agent` and `checkpoint.load_run`.
"""
