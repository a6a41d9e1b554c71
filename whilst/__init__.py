"""whilst: simultaneous machine translation, from parallel text to a live translator.

`whilst.open_model` and the other names of `__all__` are the public API (whilst/api.py), loaded when first used.
"""

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whilst.api import (
        Event,
        Model,
        PolicyKind,
        PolicySpec,
        Sentence,
        SentenceEnd,
        Session,
        UserError,
        Word,
        evaluate,
        open_model,
        register_policy,
        score,
    )

__version__ = "0.1.0"
__all__ = [
    "Event",
    "Model",
    "PolicyKind",
    "PolicySpec",
    "Sentence",
    "SentenceEnd",
    "Session",
    "UserError",
    "Word",
    "evaluate",
    "open_model",
    "register_policy",
    "score",
]

# Threads that wait must sleep, not spin: with more of them than cores an update of the toy model took 2.8 s
# spinning and 0.3 s sleeping (alone on two cores, 0.10 s either way). It has to be set before torch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from whilst import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
