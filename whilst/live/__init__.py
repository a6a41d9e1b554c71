"""Live translation: models, sessions, input, terminal display, subtitles, and the SimulEval agent.

A word goes through `terminal.run_live` -> `session.Session.feed` -> `SessionState.next_request` -> `Backend.run` ->
`SessionState.handle_result` -> `output`. Contains no network code.
Other packages use `loading.open_model` and `session.Session`.
"""
