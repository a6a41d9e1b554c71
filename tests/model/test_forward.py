"""The masks of whole batches."""

import dataclasses

import numpy as np
import pytest
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from whilst.data.batches import BLOCK, pack_batch, pad_batch
from whilst.data.dataset import Split
from whilst.model.attention import causal_mask, cross_mask, encoder_mask


def test_the_layout_chooses_the_kind_of_mask(split: Split) -> None:
    batch = pack_batch(split, np.arange(8), BLOCK, BLOCK)
    for one, kind in ((batch, BlockMask), (dataclasses.replace(batch, packed=False), Tensor)):
        made = encoder_mask(one, False), causal_mask(one), cross_mask(one, one.source_lengths)
        assert all(isinstance(mask, kind) for mask in made)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_only_a_bidirectional_encoder_looks_ahead(split: Split, bidirectional: bool) -> None:
    batch = pad_batch(split, np.arange(4))
    mask, causal = encoder_mask(batch, bidirectional), causal_mask(batch)
    assert isinstance(mask, Tensor)
    assert isinstance(causal, Tensor)
    assert bool(mask.triu(1).any()) == bidirectional
    assert not bool(causal.triu(1).any())
    for row in range(4):
        length = len(split.source[row])
        assert not bool(mask[row, 0, :length, length:].any())
