"""Labels kept for a whole split are what search finds for each batch."""

from collections.abc import Callable

import numpy as np
import torch

from whilst.data import padded
from whilst.dataset import Split
from whilst.labels import find_labels
from whilst.model import Translator
from whilst.search import search
from whilst.settings import Search
from whilst.vocab import PAD


def test_labels_are_what_search_finds(model: Translator, random_split: Callable[..., Split]) -> None:
    split = random_split(25, 14)
    settings = Search(intervals=((1, 4), (3, 6)), target="belief", tolerance=0.01)
    labels = find_labels(model, settings, split, tokens=40)
    random = np.random.default_rng(1)
    batch = padded(split, random.permutation(25)[:10])
    numbers = torch.from_numpy(random.integers(0, 2, 10))
    kept = labels.of(batch, numbers)
    found = search(model, batch, settings, torch.tensor([1, 3])[numbers][:, None])
    real = batch.labels != PAD
    assert torch.equal(kept[real], found[real])
    assert bool((kept[:, 1:] >= kept[:, :-1]).all()), "padding too must be a path"
