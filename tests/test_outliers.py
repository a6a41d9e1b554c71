"""Late heads are found: what each one did whilst a text was translated is computed again, and is what happened."""


import numpy as np
import pytest
import torch

from tests.conftest import crosses
from tests.test_learnt import LIMITS
from whilst.decode import translate_batch
from whilst.model import Translator
from whilst.outliers import FAR, Head, find_heads, head_stops, heads_table
from whilst.policy import policy


def test_late_heads_are_found(monotone: Translator, sources: list[list[int]]) -> None:
    """A head that never stops is last nearly always, and only the end of what was read stops it."""
    model = Translator(monotone.settings, 17, 13).double().eval()
    model.load_state_dict(monotone.state_dict())
    crosses(model)[1].bias.data[0] = -1e6
    outputs = translate_batch(model, sources, policy("mma"), LIMITS)
    # A head that waits for the end of the source makes every token wait.
    assert all(set(output.reads) == {len(source)} for output, source in zip(outputs, sources, strict=True))
    heads = find_heads(model, sources, outputs, 5)
    assert [(head.layer, head.head) for head in heads] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    slow = heads[2]
    assert slow.forced == 1
    assert slow.last == max(head.last for head in heads) > 0.3
    length = np.average([len(s) for s in sources], weights=[len(output.reads) for output in outputs])
    assert slow.stop == pytest.approx(length)
    assert slow.behind == max(head.behind for head in heads) > 0
    assert [head.is_outlier for head in heads] == [head.behind > FAR for head in heads]
    assert heads_table([*heads, Head(3, 1, 9.0, 3.0, 1.0, 0.0)]).row_count == 5


def test_stops_explain_the_reads(monotone: Translator, sources: list[list[int]]) -> None:
    """What is computed again is what happened: a token is written once its last head has stopped, or at the end."""
    forced = 0
    for source, output in zip(sources, translate_batch(monotone, sources, policy("mma"), LIMITS), strict=True):
        stops, done = (found.flatten(1) for found in head_stops(monotone, [source], [output]))
        assert bool((stops.diff(dim=0) >= 0).all()), "a head never goes back"
        last, ready = (stops.max(1).values + 1).cummax(0).values, done.all(1)
        assert torch.where(ready, last, len(source)).tolist() == output.reads
        forced += int((~ready).sum())
    assert forced > 0
