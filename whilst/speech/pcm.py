"""The audio that recognisers take: mono, 16 kHz, 16-bit little-endian PCM; and its samples as numbers."""

import numpy as np
from numpy.typing import NDArray

RATE = 16_000  # samples a second
WIDTH = 2  # bytes of a sample
SECOND = RATE * WIDTH  # bytes

Samples = NDArray[np.float32]  # from -1 to 1


def from_pcm(pcm: bytes) -> Samples:
    return np.frombuffer(pcm, "<i2").astype(np.float32) / np.float32(32768)


def to_pcm(samples: NDArray[np.floating]) -> bytes:
    return np.asarray(np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes()
