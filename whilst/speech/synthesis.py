"""Speech made by espeak-ng, where it is installed, with the time of every word: for the demo and for measuring."""

import ctypes
import ctypes.util
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whilst.core.errors import UserError
from whilst.speech.audio import Resampler
from whilst.speech.pcm import WIDTH, from_pcm, to_pcm

# Of espeak-ng/speak_lib.h.
SYNCHRONOUS, WORDS_PER_MINUTE, CHARACTERS, UTF8 = 2, 1, 1, 1
END_OF_EVENTS, WORD, END_OF_CLAUSE = 0, 1, 5
QUIET = 0.01  # of full scale


class Event(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("message", ctypes.c_uint),
        ("text_position", ctypes.c_int),  # from 1
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),  # ms
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", ctypes.c_char * 8),
    )


CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(Event))


@dataclass(frozen=True)
class Speech:
    pcm: bytes
    ends: list[float]  # seconds at which each word of the text has been spoken


def find_espeak() -> str | None:
    return ctypes.util.find_library("espeak-ng")


def speak(text: str, words_per_minute: int = 150) -> Speech:
    """The words of the text are those between white space."""
    library = find_espeak()
    if library is None:
        raise UserError("espeak-ng is not installed: for example apt install espeak-ng")
    espeak = ctypes.CDLL(library)
    rate = espeak.espeak_Initialize(SYNCHRONOUS, 0, None, 0)
    audio, events = bytearray(), list[tuple[int, int, float]]()

    def receive(samples: int | None, count: int, found: Any) -> int:
        if samples:
            audio.extend(ctypes.string_at(samples, count * WIDTH))
        number = 0
        while (event := found[number]).type != END_OF_EVENTS:
            events.append((event.type, event.text_position - 1, event.audio_position / 1000))
            number += 1
        return 0

    callback = CALLBACK(receive)
    espeak.espeak_SetSynthCallback(callback)
    espeak.espeak_SetVoiceByName(b"en-us")
    espeak.espeak_SetParameter(WORDS_PER_MINUTE, words_per_minute, 0)
    data = text.encode()
    espeak.espeak_Synth(data, len(data) + 1, 0, CHARACTERS, 0, UTF8, None, None)
    samples = from_pcm(bytes(audio))
    loud = np.flatnonzero(np.abs(samples) > QUIET) / rate  # seconds
    return Speech(to_pcm(Resampler(rate).feed(samples)), word_ends(text, events, loud))


def word_ends(text: str, events: list[tuple[int, int, float]], loud: NDArray[np.float64]) -> list[float]:
    """A word ends where another word or the clause's pause begins, after its last `loud` sample."""
    starts = [(position, time) for kind, position, time in events if kind == WORD]
    bounds = sorted(time for kind, _, time in events if kind in (WORD, END_OF_CLAUSE))
    ends = []
    for word in re.finditer(r"\S+", text):
        start = max((time for position, time in starts if position < word.end()), default=0.0)
        following = next((bound for bound in bounds if bound > start), start)
        before = loud[: np.searchsorted(loud, following)]
        ends.append(max(start, float(before[-1]) if len(before) else 0.0))
    return ends
