"""Shared fixtures: tiny models, random corpora, and one small prepared dataset."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import torch

from tests.helpers.browser import Browser, Tab, browser
from whilst.core.console import console
from whilst.core.settings import Data, Model
from whilst.data import toy
from whilst.data.dataset import Dataset, Split, TokenSequences
from whilst.data.prepare import prepare
from whilst.data.vocabulary import EOS
from whilst.model.monotonic_attention import MonotonicHeads
from whilst.model.transformer import Translator

UNITS = 17, 13  # source and target units of the tiny models

# No deadline, since shared machines are slow at times; and reproducible examples.
hypothesis.settings.register_profile("whilst", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("whilst")
torch.set_num_threads(1)  # small tensors gain nothing from threads, and tests run in parallel


def make_model(settings: Model, units: tuple[int, int] = UNITS, seed: int = 2) -> Translator:
    """A random model in eval mode whose output depends on the source and has an end.

    Fresh weights repeat the last token, so those of the source are scaled up and eos is made more probable. In
    double precision, so that two computations of the same logits agree about the largest.
    """
    torch.manual_seed(seed)
    model = Translator(settings, *units).double().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))  # biases of zero would hide a missing bias
            elif name == "target_embedding.weight":
                parameter.mul_(0.2)
                parameter[EOS].mul_(2)
            else:
                parameter.mul_(3.0 if "source" in name or "cross" in name else 1.5)
    return model


@pytest.fixture(scope="session")
def tiny() -> Model:
    """Settings of the smallest model with several layers and heads."""
    return Model(width=16, heads=2, encoder_layers=2, decoder_layers=2, feed_forward=24, dropout=0.1)


@pytest.fixture(scope="session")
def translator() -> Callable[..., Translator]:
    """`make_model`, for tests with their own settings, units or seed."""
    return make_model


@pytest.fixture(scope="session")
def model(tiny: Model) -> Translator:
    """A tiny causal model with 17 source and 13 target units. Shared: do not change it."""
    return make_model(tiny)


def crosses(model: Translator) -> list[MonotonicHeads]:
    """The cross-attention of a model with monotonic heads."""
    found = [layer.get_submodule("cross") for layer in model.decoder]
    return [cross for cross in found if isinstance(cross, MonotonicHeads)]


@pytest.fixture(scope="session")
def monotone(tiny: Model) -> Translator:
    """A model with monotonic heads that differ from each other and stop at times. Shared: do not change it."""
    model = make_model(dataclasses.replace(tiny, cross="monotone"))
    for cross in crosses(model):
        cross.bias.data = torch.tensor([1.0, -0.3], dtype=torch.float64)
    return model


def make_split(pairs: int, seed: int, longest: int = 12) -> Split:
    """Random sentences of 1 to `longest` units, eos counted; the two sides differ in length."""
    random = np.random.default_rng(seed)

    def side(units: int) -> TokenSequences:
        lengths = random.integers(1, longest, pairs, endpoint=True)
        offsets = np.concatenate([[0], lengths.cumsum()]).astype(np.int64)
        tokens = random.integers(EOS + 1, units, offsets[-1]).astype(np.uint16)
        tokens[offsets[1:] - 1] = EOS
        return TokenSequences(tokens, offsets)

    return Split(side(UNITS[0]), side(UNITS[1]))


@pytest.fixture(scope="session")
def random_split() -> Callable[..., Split]:
    """`make_split`, for tests with their own size."""
    return make_split


@pytest.fixture(scope="session")
def split() -> Split:
    """100 random pairs for the tiny models."""
    return make_split(100, seed=1)


@pytest.fixture(scope="session")
def toy_data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    """Settings of a small toy corpus, with files: 300 training pairs, 20 each for validation and test."""
    folder = tmp_path_factory.mktemp("toy")
    drawn = list(toy.pairs(340, seed=1, lexicon=toy.build_lexicon(scale=0.1)))
    for name, part in (("train", drawn[40:]), ("valid", drawn[:20]), ("test", drawn[20:40])):
        for ending, lines in (("src", [pair.source for pair in part]), ("tgt", [pair.target for pair in part])):
            text = "".join(" ".join(line) + "\n" for line in lines)
            (folder / f"{name}.{ending}").write_text(text, encoding="utf-8")
    return Data(
        dataset=str(folder / "dataset"),
        folder=str(folder),
        train=("train.src", "train.tgt"),
        valid=("valid.src", "valid.tgt"),
        test=("test.src", "test.tgt"),
        units="word",
    )


@pytest.fixture(scope="session")
def toy_folder(toy_data: Data) -> Path:
    """Its dataset folder. Shared: do not write into it."""
    return prepare(toy_data)


@pytest.fixture(scope="session")
def toy_dataset(toy_folder: Path) -> Dataset:
    return Dataset.open(toy_folder)


@pytest.fixture(scope="session")
def sources() -> list[list[int]]:
    """Twelve random source sentences for the tiny models."""
    split = make_split(12, 21)
    return [split.source[i].tolist() for i in range(12)]


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    with browser() as chrome:
        yield chrome


@pytest.fixture
def tab(chrome: Browser) -> Iterator[Tab]:
    tab = chrome.tab()
    tab.resize(1280, 800)
    yield tab
    lost = ("WebSocket connection to", "ERR_CONNECTION_REFUSED")  # messages about a server that was stopped
    assert [text for text in tab.errors if not any(part in text for part in lost)] == []
    tab.close()


@pytest.fixture(params=[80, 140])
def terminal_width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Width of the terminal that the console prints to."""
    found: int = request.param
    monkeypatch.setattr(console, "_force_terminal", True)
    monkeypatch.setattr(console, "_width", found)
    return found
