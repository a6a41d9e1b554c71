"""The live translation server: many sessions over WebSocket and HTTP, whose model steps are computed in batches.

Only the commands import this package. The web page is in `page/`.
"""
