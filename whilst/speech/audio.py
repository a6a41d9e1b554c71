"""Audio from a file or a microphone, as blocks of PCM for recognisers: mono, 16 kHz, 16-bit little-endian."""

import contextlib
import itertools
import queue
import shutil
import subprocess
import threading
import time
import wave
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whilst.core.errors import UserError, note

RATE = 16_000  # samples a second
WIDTH = 2  # bytes of a sample
SECOND = RATE * WIDTH  # bytes
BLOCKS = 10  # a second
UNPLUGGED = 3.0  # seconds without audio after which a microphone counts as disconnected
MAX_WAITING = 60 * BLOCKS  # blocks of a microphone that wait to be read

Samples = NDArray[np.float32]  # from -1 to 1
PcmBlocks = Generator[bytes, None, None]  # closing it ends ffmpeg or closes the microphone


def from_pcm(pcm: bytes) -> Samples:
    return np.frombuffer(pcm, "<i2").astype(np.float32) / np.float32(32768)


def to_pcm(samples: NDArray[np.floating]) -> bytes:
    return np.asarray(np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes()


def at_speaking_pace(
    blocks: PcmBlocks,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> PcmBlocks:
    """Yield each block when it would have been spoken. Blocks that the consumer is late for are merged into one."""
    start, waiting, seconds = now(), b"", 0.0
    with contextlib.closing(blocks):
        for block in blocks:
            waiting += block
            seconds += len(block) / SECOND
            early = start + seconds - now()
            if early > -1 / BLOCKS:
                sleep(max(0.0, early))
                yield waiting
                waiting = b""
        if waiting:
            yield waiting


def open_microphone(name: str) -> PcmBlocks:
    """`name`: a number of `list_microphones`, or part of a microphone's name; empty: the default microphone."""
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

    def blocks() -> PcmBlocks:
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
                    note(f"{seconds} behind the speaker: audio was lost; try --interval 2")
                yield to_pcm(resampler.feed(from_pcm(pcm)))

    try:
        rate = int(sounddevice.query_devices(device, "input")["default_samplerate"])
        with contextlib.suppress(sounddevice.PortAudioError):  # not every microphone has 16 kHz
            sounddevice.check_input_settings(device, 1, "int16", samplerate=RATE)
            rate = RATE
        stream = sounddevice.RawInputStream(rate, rate // BLOCKS, device, 1, "int16", callback=take)
        stream.start()
    except (sounddevice.PortAudioError, ValueError) as error:
        problem = f"no microphone {name!r}" if name else "no microphone"
        raise UserError(f"{problem} ({error}); see whilst listen --device-list") from None
    return blocks()


class Resampler:
    """Resamples audio to 16 kHz: a moving average against aliasing, then linear interpolation."""

    def __init__(self, rate: int) -> None:
        self._step = rate / RATE
        self._width = max(1, round(self._step))
        self._samples: Samples = np.zeros(0, np.float32)
        self._position = 0.0  # of the next result in `_samples`

    def feed(self, samples: Samples) -> Samples:
        """The results do not depend on how the audio is divided into calls."""
        if self._step == 1:
            return samples
        self._samples = np.concatenate([self._samples, samples])
        last = len(self._samples) - self._width  # of the smoothed samples
        positions = np.arange(self._position, last + 1e-9, self._step)
        if not len(positions):
            return samples[:0]
        smooth = np.convolve(self._samples, np.full(self._width, 1 / self._width), "valid")
        self._position = float(positions[-1]) + self._step
        drop = min(int(self._position), len(self._samples))
        self._samples, self._position = self._samples[drop:], self._position - drop
        return np.asarray(np.interp(positions, np.arange(last + 1), smooth), np.float32)


def open_file(path: Path) -> PcmBlocks:
    """Read a WAV file; other formats are converted by ffmpeg."""
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    try:
        return wav_blocks(wave.open(str(path)))
    except (wave.Error, EOFError):
        if shutil.which("ffmpeg") is None:
            raise UserError(f"{path}: not a WAV file of PCM; install ffmpeg, which reads other files") from None
    return ffmpeg_blocks(path)


def wav_blocks(file: wave.Wave_read) -> PcmBlocks:
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


def ffmpeg_blocks(path: Path) -> PcmBlocks:
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
    """A line for each microphone, with its number."""
    devices = import_sounddevice().query_devices()
    found = [f"{n:3}  {device['name']}" for n, device in enumerate(devices) if device["max_input_channels"]]
    if not found:
        raise UserError("no microphone: connect one, or name a file")
    return found
