"""What several tests share: tiny models, corpora made in memory, and one small prepared dataset."""

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

# A shared machine is slow at times, and what is drawn must not depend on the day.
hypothesis.settings.register_profile("whilst", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("whilst")
torch.set_num_threads(1)  # tensors this small only lose by sharing work, and the tests run in parallel


def make_model(settings: Model, units: tuple[int, int] = UNITS, seed: int = 2) -> Translator:
    """A random model in eval mode whose output depends visibly on what it reads, and ends now and then.

    Fresh weights repeat the last token for ever: what comes from the source is made stronger, and the end mark
    likelier. In double precision, so that two ways to one number never disagree about the largest logit.
    """
    torch.manual_seed(seed)
    model = Translator(settings, *units).double().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))  # a bias of zero would hide a forgotten one
            elif name == "target_embedding.weight":
                parameter.mul_(0.2)
                parameter[EOS].mul_(2)
            else:
                parameter.mul_(3.0 if "source" in name or "cross" in name else 1.5)
    return model


@pytest.fixture(scope="session")
def tiny() -> Model:
    """Settings of the smallest model that has more than one of everything."""
    return Model(width=16, heads=2, encoder_layers=2, decoder_layers=2, feed_forward=24, dropout=0.1)


@pytest.fixture(scope="session")
def translator() -> Callable[..., Translator]:
    """`make_model`, for tests that want settings, units or a seed of their own."""
    return make_model


@pytest.fixture(scope="session")
def model(tiny: Model) -> Translator:
    """A tiny causal model of 17 source and 13 target units. Shared: do not change it."""
    return make_model(tiny)


def crosses(model: Translator) -> list[MonotonicHeads]:
    """The cross-attention of a model with monotone heads."""
    found = [layer.get_submodule("cross") for layer in model.decoder]
    return [cross for cross in found if isinstance(cross, MonotonicHeads)]


@pytest.fixture(scope="session")
def monotone(tiny: Model) -> Translator:
    """One whose heads differ, and stop now and then. Shared: do not change it."""
    model = make_model(dataclasses.replace(tiny, cross="monotone"))
    for cross in crosses(model):
        cross.bias.data = torch.tensor([1.0, -0.3], dtype=torch.float64)
    return model


def make_split(pairs: int, seed: int, longest: int = 12) -> Split:
    """Random sentences of 1 to `longest` units (end mark counted); the two sides differ in length."""
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
    """`make_split`, for tests that want a size of their own."""
    return make_split


@pytest.fixture(scope="session")
def split() -> Split:
    """100 random pairs that the tiny models can read."""
    return make_split(100, seed=1)


@pytest.fixture(scope="session")
def toy_data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    """Settings of a small toy corpus whose files are there: 300 training pairs, 20 each to validate and test."""
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
    """The dataset folder that `whilst prepare` makes of it. Shared: do not write into it."""
    return prepare(toy_data)


@pytest.fixture(scope="session")
def toy_dataset(toy_folder: Path) -> Dataset:
    return Dataset.open(toy_folder)


@pytest.fixture(scope="session")
def sources() -> list[list[int]]:
    """What the tiny models translate, where any sentences will do."""
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
    lost = ("WebSocket connection to", "ERR_CONNECTION_REFUSED")  # what a browser says of a server that has gone
    assert [text for text in tab.complaints if not any(part in text for part in lost)] == []
    tab.close()


@pytest.fixture(params=[80, 140])
def terminal_width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """What is printed goes to a terminal of this width."""
    found: int = request.param
    monkeypatch.setattr(console, "_force_terminal", True)
    monkeypatch.setattr(console, "_width", found)
    return found
