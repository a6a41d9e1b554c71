"""Live translation: models, sessions, input, terminal display, subtitles, and the SimulEval agent.

Contains no network code. Other packages use `loading.open_model` and `session.Session`.
"""
