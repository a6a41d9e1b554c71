"""The command `whilst demo --speech`: a short talk through the whole chain, without sound hardware."""

import tempfile
import wave
from pathlib import Path

from whilst.core.settings import DEFAULT_MODEL
from whilst.live.loading import ModelOptions
from whilst.live.terminal import DEMO_LATENCY, TALK, LiveOptions
from whilst.speech.listen import ListenOptions, listen
from whilst.speech.pcm import RATE, WIDTH
from whilst.speech.recogniser import recording
from whilst.speech.synthesis import find_espeak, speak


def speech_demo(fast: bool = False) -> None:
    """The talk of `whilst demo` if espeak-ng can speak it, else a recording that comes with the recogniser."""
    with tempfile.TemporaryDirectory() as folder:
        talk = recording()
        if find_espeak():
            talk = Path(folder) / "talk.wav"
            write_wav(talk, speak(TALK.read_text(encoding="utf-8")).pcm)
        options = ListenOptions(str(talk), fast=fast, live=LiveOptions(show=True))
        listen(ModelOptions(DEFAULT_MODEL, DEMO_LATENCY), options)


def write_wav(path: Path, pcm: bytes) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(WIDTH)
        file.setframerate(RATE)
        file.writeframes(pcm)
