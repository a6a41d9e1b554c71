"""Audio from a file, a pipe or a microphone, in chunks of PCM as recognisers take it."""

import contextlib
import itertools
import queue
import shutil
import subprocess
import threading
import time
import wave
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from whilst.core.errors import UserError
from whilst.speech.pcm import RATE, SECOND, Samples, from_pcm, to_pcm

BLOCKS = 10  # in a second
UNPLUGGED = 3.0  # seconds without audio after which a microphone has gone
MAX_WAITING = 60 * BLOCKS  # blocks of a microphone that wait to be read


class Audio:
    """Blocks of PCM, with the method of a binary file that live translation reads its input with."""

    def __init__(self, blocks: Iterator[bytes], at_pace: bool = False) -> None:
        """`at_pace`: give a block when it would have been spoken, instead of as soon as it is there."""
        self.seconds = 0.0  # that have been read
        self._blocks, self._at_pace = blocks, at_pace
        self._start: float | None = None

    def read1(self, size: int = -1) -> bytes:  # noqa: ARG002  (a chunk is what there is)
        """Waits for audio; empty at its end."""
        pcm = next(self._blocks, b"")
        if self._at_pace and pcm:
            time.sleep(max(0.0, self._due(pcm) - time.monotonic()))
            while self._due(pcm) + 1 / BLOCKS <= time.monotonic() and (block := next(self._blocks, b"")):
                pcm += block
        self.seconds += len(pcm) / SECOND
        return pcm

    def _due(self, pcm: bytes) -> float:
        """When the end of this audio has been spoken."""
        self._start = time.monotonic() if self._start is None else self._start
        return self._start + self.seconds + len(pcm) / SECOND

    def close(self) -> None:
        del self._blocks  # ends a program or closes a microphone that it reads from


def microphone_blocks(name: str, notify: Callable[[str], None]) -> Iterator[bytes]:
    """`name`: number in `list_microphones`, or part of a name; empty: the default. `notify` hears of lost audio."""
    sounddevice = import_sounddevice()
    device = int(name) if name.isdecimal() else name or None
    waiting: queue.Queue[bytes] = queue.Queue(MAX_WAITING)
    lost = threading.Event()

    def take(data: Any, *_: Any) -> None:
        """Called by the thread that records."""
        try:
            waiting.put_nowait(bytes(data))
        except queue.Full:
            lost.set()

    def blocks() -> Iterator[bytes]:
        resampler = Resampler(rate)
        with contextlib.closing(stream):
            while True:
                try:
                    pcm = waiting.get(timeout=UNPLUGGED)
                except queue.Empty:
                    raise UserError("the microphone gives no audio any more; is it still connected?") from None
                while not waiting.empty():
                    pcm += waiting.get_nowait()
                if lost.is_set():
                    lost.clear()
                    seconds = f"{MAX_WAITING / BLOCKS:.0f} seconds"
                    notify(f"{seconds} behind the speaker: audio was lost; try --interval 2")
                yield to_pcm(resampler.feed(from_pcm(pcm)))

    try:
        rate = int(sounddevice.query_devices(device, "input")["default_samplerate"])
        with contextlib.suppress(sounddevice.PortAudioError):  # not every microphone has 16 kHz
            sounddevice.check_input_settings(device, 1, "int16", samplerate=RATE)
            rate = RATE
        stream = sounddevice.RawInputStream(rate, rate // BLOCKS, device, 1, "int16", callback=take)
        stream.start()
    except (sounddevice.PortAudioError, ValueError) as error:
        which = f"no microphone {name!r}" if name else "no microphone"
        raise UserError(f"{which} ({error}); see whilst listen --device-list") from None
    return blocks()


class Resampler:
    """From another rate to 16 kHz: a moving average against aliasing, then linear interpolation."""

    def __init__(self, rate: int) -> None:
        self._step = rate / RATE
        self._width = max(1, round(self._step))
        self._samples: Samples = np.zeros(0, np.float32)
        self._place = 0.0  # of the next result, in the samples

    def feed(self, samples: Samples) -> Samples:
        """The results do not depend on how the samples are cut."""
        if self._step == 1:
            return samples
        self._samples = np.concatenate([self._samples, samples])
        last = len(self._samples) - self._width  # of the smoothed samples
        places = np.arange(self._place, last + 1e-9, self._step)
        if not len(places):
            return samples[:0]
        smooth = np.convolve(self._samples, np.full(self._width, 1 / self._width), "valid")
        self._place = float(places[-1]) + self._step
        drop = min(int(self._place), len(self._samples))
        self._samples, self._place = self._samples[drop:], self._place - drop
        return np.asarray(np.interp(places, np.arange(last + 1), smooth), np.float32)


def open_file(path: Path, fast: bool) -> Audio:
    """A WAV file; any other file through ffmpeg."""
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    try:
        return Audio(wav_blocks(wave.open(str(path))), not fast)
    except (wave.Error, EOFError):
        if shutil.which("ffmpeg") is None:
            raise UserError(f"{path}: not a WAV file of PCM; install ffmpeg, which reads other files") from None
    return Audio(ffmpeg_blocks(path), not fast)


def wav_blocks(file: wave.Wave_read) -> Iterator[bytes]:
    width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
    resampler = Resampler(rate)
    with file:
        while data := file.readframes(rate // BLOCKS):
            whole = np.frombuffer(data[: len(data) // (width * channels) * width * channels], np.uint8)
            frames = whole.reshape(-1, channels, width)
            # The two highest bytes of each sample; samples of one byte are unsigned.
            if width > 1:
                values = frames[..., -2:].copy().view("<i2")[..., 0]
            else:
                values = (frames[..., 0].astype(np.int16) - 128) * 256
            yield to_pcm(resampler.feed(values.mean(axis=1, dtype=np.float32) / 32768))


def ffmpeg_blocks(path: Path) -> Iterator[bytes]:
    options = f"-vn -f s16le -ac 1 -ar {RATE} -".split()
    command = ["ffmpeg", "-nostdin", "-v", "error", "-i", f"file:{path}", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        output, errors = process.stdout, process.stderr
        assert output is not None
        assert errors is not None
        try:
            blocks = iter(lambda: output.read(SECOND // BLOCKS), b"")
            first = next(blocks, b"")
            if not first:
                message = errors.read().decode(errors="replace").strip().splitlines() or ["it is empty"]
                raise UserError(f"{path}: no audio that ffmpeg can read: {message[-1]}")
            yield from itertools.chain([first], blocks)
        finally:
            process.kill()


def import_sounddevice() -> Any:
    try:
        import sounddevice
    except OSError:
        message = "PortAudio, which reads microphones, is not installed: for example apt install libportaudio2"
        raise UserError(message) from None
    return sounddevice


def list_microphones() -> list[str]:
    """A line for each, with its number."""
    devices = import_sounddevice().query_devices()
    found = [f"{n:3}  {device['name']}" for n, device in enumerate(devices) if device["max_input_channels"]]
    if not found:
        raise UserError("no microphone: connect one, or name a file")
    return found
