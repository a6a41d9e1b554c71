"""The live translation server: many sessions over WebSocket and HTTP, one model that does their steps together.

A leaf: only the commands import it. The page that it serves is in `page/`.
"""
