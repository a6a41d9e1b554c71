"""The command `whilst demo`: a short talk at speaking rate, translated by the model that comes with the package."""

from pathlib import Path

from whilst.core.settings import DEFAULT_MODEL
from whilst.live.loading import ModelOptions
from whilst.live.terminal import LiveOptions, run_live

TALK = Path(__file__).with_name("talk.txt")
LATENCY = "agent-3"  # between low and medium: shows more of the waiting than medium, at equal quality on this talk


def demo(words_per_second: float = 3.0) -> None:
    with TALK.open("rb") as talk:
        run_live(
            ModelOptions(DEFAULT_MODEL, LATENCY), LiveOptions(show=True, words_per_second=words_per_second), talk
        )
