"""The command `whilst demo --speech`: a short talk through the whole chain, without sound hardware."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from whilst.core.settings import DEFAULT_MODEL
from whilst.live.loading import ModelOptions
from whilst.live.terminal import DEMO_LATENCY, TALK, LiveOptions
from whilst.speech.listen import ListenOptions, listen
from whilst.speech.recogniser import recording


def speech_demo(fast: bool = False) -> None:
    """The talk of `whilst demo` if espeak-ng can speak it, else a recording that comes with the recogniser."""
    with tempfile.TemporaryDirectory() as folder:
        talk = recording()
        if shutil.which("espeak-ng"):
            talk = Path(folder) / "talk.wav"
            subprocess.run(["espeak-ng", "-v", "en-us", "-s", "150", "-f", TALK, "-w", talk], check=True)
        options = ListenOptions(str(talk), fast=fast, live=LiveOptions(show=True))
        listen(ModelOptions(DEFAULT_MODEL, DEMO_LATENCY), options)
