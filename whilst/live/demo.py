"""The demo: a short talk, translated whilst it is spoken, by the model that comes with the package."""

from pathlib import Path

from whilst.core.settings import DEFAULT_MODEL
from whilst.live.loading import Wanted
from whilst.live.terminal import Options, run_live

TALK = Path(__file__).with_name("talk.txt")
LATENCY = "agent-3"  # between low and medium: as good as medium on this talk, and more to see
PACE = 3.0  # words a second


def demo(pace: float = PACE) -> None:
    with TALK.open("rb") as talk:
        run_live(Wanted(DEFAULT_MODEL, LATENCY), Options(show=True, pace=pace), talk)
