"""One live translation: a session takes words and gives words; input, displays, subtitles, terminal, SimulEval.

Knows no sockets. Others use `loading.open_model` and `session.Session`.
"""
