"""The Transformer whose decoder sees the source through `reads`, its caches, monotonic attention, the agent.

Knows no policy. Others use `transformer.Translator`, `agent.Agent`, `checkpoint.load_run` and `reads`.
"""
