"""The live translation server: many sessions over WebSocket and HTTP.

A word goes through `websocket.receive_messages` -> `sessions.ClientSession.add` -> `worker.Stream.advance` ->
`served.Pool.do` -> `Stream.handle_result` -> `websocket.send_messages`.

Only the commands import this package. The web page is in `page/`.
"""
