"""The demo: a short talk, translated whilst it is spoken, by the model that comes with the package."""

from pathlib import Path

from whilst.loading import BUNDLED, Wanted
from whilst.terminal import Options, run_live
from whilst.walkthrough import walk_through

MODEL = "en-vi"
TALK = Path(__file__).with_name("talk.txt")
PACE = 3.0  # words a second


def demo(pace: float = PACE) -> None:
    """Without a model in the package, the toy language has to do."""
    if not (BUNDLED / MODEL).is_dir():
        walk_through()
        return
    with TALK.open("rb") as talk:
        run_live(Wanted(MODEL, "low"), Options(show=True, pace=pace), talk)
