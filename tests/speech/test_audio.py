"""Audio from WAV files of every kind, through ffmpeg, at its own pace, and from a microphone that is not there."""

import itertools
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.speech import write_wav
from whilst.core.errors import UserError
from whilst.speech import audio
from whilst.speech.audio import (
    RATE,
    SECOND,
    PcmBlocks,
    Resampler,
    Samples,
    at_speaking_pace,
    from_pcm,
    list_microphones,
    open_file,
    open_microphone,
)

needs_ffmpeg = pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="ffmpeg is not installed")


def tone(rate: int, seconds: float = 0.5) -> "np.ndarray[Any, Any]":
    return np.sin(2 * np.pi * 440 * np.arange(round(rate * seconds)) / rate) / 2


def write(path: Path, rate: int, width: int, channels: int) -> None:
    values = np.repeat(tone(rate)[:, None], channels, axis=1)
    if width == 1:
        data = (values * 127 + 128).astype(np.uint8).tobytes()
    else:
        wide = (values * 2**31).astype("<i4")[..., None].view(np.uint8).reshape(-1, 4)
        data = wide[:, 4 - width :].tobytes()
    write_wav(path, rate, width, channels, data)


@pytest.mark.parametrize(("rate", "width", "channels"), [(16000, 2, 1), (48000, 2, 2), (44100, 3, 1), (8000, 1, 2)])
def test_every_wav_is_the_same_tone(tmp_path: Path, rate: int, width: int, channels: int) -> None:
    write(tmp_path / "a.wav", rate, width, channels)
    samples = from_pcm(b"".join(open_file(tmp_path / "a.wav")))
    assert len(samples) == pytest.approx(RATE / 2, abs=16)
    assert np.abs(samples[:7900] - tone(RATE)[:7900]).max() < 0.05


@given(st.lists(st.integers(1, 500), max_size=20), st.sampled_from([8000, 16000, 22050, 44100, 48000]))
def test_resampling_does_not_depend_on_how_samples_are_cut(cuts: list[int], rate: int) -> None:
    samples: Samples = tone(rate, 0.05).astype(np.float32)
    places = sorted({min(cut, len(samples)) for cut in itertools.accumulate(cuts)} | {0, len(samples)})
    resampler = Resampler(rate)
    parts = [resampler.feed(samples[a:b]) for a, b in itertools.pairwise(places)]
    whole = Resampler(rate).feed(samples)
    assert np.concatenate(parts) == pytest.approx(whole, abs=1e-5)
    assert len(whole) == pytest.approx(RATE * 0.05, abs=4)


def test_a_wav_that_was_cut_off(tmp_path: Path) -> None:
    write(tmp_path / "a.wav", 16000, 2, 2)
    data = (tmp_path / "a.wav").read_bytes()
    (tmp_path / "a.wav").write_bytes(data[:-1001])
    assert len(b"".join(open_file(tmp_path / "a.wav"))) == (len(data) - 44 - 1001) // 4 * 2


@needs_ffmpeg
def test_other_files_through_ffmpeg(tmp_path: Path) -> None:
    write(tmp_path / "a.wav", 44100, 2, 1)
    subprocess.run(["ffmpeg", "-v", "error", "-i", tmp_path / "a.wav", tmp_path / "a.flac"], check=True)
    samples = from_pcm(b"".join(open_file(tmp_path / "a.flac")))
    assert np.abs(samples[200:7800] - tone(RATE)[200:7800]).max() < 0.05


@needs_ffmpeg
def test_ffmpeg_says_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "a.mp3").write_text("no music")
    with pytest.raises(UserError, match=r"a\.mp3: no audio that ffmpeg can read: "):
        next(open_file(tmp_path / "a.mp3"))


def test_without_ffmpeg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    (tmp_path / "a.mp3").write_text("music")
    with pytest.raises(UserError, match="install ffmpeg"):
        open_file(tmp_path / "a.mp3")
    with pytest.raises(UserError, match="no such file"):
        open_file(tmp_path / "b.mp3")


def test_the_pace_of_speech() -> None:
    now = 100.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    block = bytes(SECOND // 10)
    blocks = at_speaking_pace((block for _ in range(20)), lambda: now, sleep)
    assert next(blocks) == block
    assert now == pytest.approx(100.1)
    now += 1.0  # the recogniser was busy
    late = len(next(blocks)) / SECOND
    assert late == pytest.approx(0.95, abs=0.06), "all that has been spoken meanwhile, and no more"
    assert now == pytest.approx(101.1)
    assert sum(map(len, blocks)) / SECOND == pytest.approx(2 - 0.1 - late)
    assert now == pytest.approx(102.0)


def test_audio_for_a_reader_that_is_late_at_the_end() -> None:
    """Nothing is lost, and what is closed is closed to its source."""
    closed = []

    def source() -> PcmBlocks:
        try:
            yield from [b"a", b"b", b"c"]
        finally:
            closed.append(True)

    now = itertools.chain([0.0, 0.0], itertools.repeat(100.0))
    assert list(at_speaking_pace(source(), lambda: next(now), lambda _: None)) == [b"a", b"bc"]
    blocks = at_speaking_pace(source(), lambda: next(now), lambda _: None)
    next(blocks)
    blocks.close()
    assert closed == [True, True]


class PortAudioError(Exception):
    pass


class FakeSound:
    """The part of sounddevice that is used: two devices, one of which takes 48 kHz only."""

    PortAudioError = PortAudioError
    devices: tuple[dict[str, object], ...] = (
        {"name": "Loudspeaker", "max_input_channels": 0},
        {"name": "USB mic", "max_input_channels": 1},
    )

    def __init__(self) -> None:
        self.take: Callable[[bytes, int, None, None], None]
        self.closed = False

    def query_devices(self, device: object = None, kind: str = "") -> Any:
        if kind and device not in (None, 1, "usb"):
            raise ValueError(f"No input device matching {device!r}")
        return {"default_samplerate": 48000.0} if kind else self.devices

    def check_input_settings(self, *_: object, samplerate: int) -> None:
        raise PortAudioError(f"invalid sample rate {samplerate}")

    def RawInputStream(self, rate: int, block: int, *_: object, callback: Any) -> Any:  # noqa: N802
        assert (rate, block) == (48000, 4800)
        self.take = callback
        return SimpleNamespace(start=lambda: None, close=lambda: setattr(self, "closed", True))


@pytest.fixture
def sound(monkeypatch: pytest.MonkeyPatch) -> FakeSound:
    fake = FakeSound()
    monkeypatch.setitem(sys.modules, "sounddevice", fake)
    return fake


def test_a_microphone(sound: FakeSound, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audio, "UNPLUGGED", 0.01)
    assert list_microphones() == ["  1  USB mic"]
    microphone = open_microphone("usb")
    for _ in range(10):
        sound.take(bytes(9600), 4800, None, None)
    assert len(next(microphone)) == pytest.approx(2 * RATE, abs=8), "everything that waits, at 16 kHz"
    with pytest.raises(UserError, match="is it still connected"):
        next(microphone)
    assert sound.closed


def test_a_microphone_that_is_read_too_late(sound: FakeSound, capsys: pytest.CaptureFixture[str]) -> None:
    microphone = open_microphone("")
    for _ in range(audio.MAX_WAITING + 5):
        sound.take(bytes(9600), 4800, None, None)
    assert len(next(microphone)) / SECOND == pytest.approx(60, abs=0.1)
    assert "audio was lost" in capsys.readouterr().err
    microphone.close()
    assert sound.closed


def test_no_such_microphone(sound: FakeSound) -> None:
    with pytest.raises(UserError, match="no microphone 'studio'"):
        open_microphone("studio")
    sound.devices = ({"name": "Loudspeaker", "max_input_channels": 0},)
    with pytest.raises(UserError, match="connect one"):
        list_microphones()


def test_no_portaudio(monkeypatch: pytest.MonkeyPatch) -> None:
    class Finder:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "sounddevice":
                raise OSError("PortAudio library not found")

    monkeypatch.delitem(sys.modules, "sounddevice", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    with pytest.raises(UserError, match="PortAudio"):
        open_microphone("")
