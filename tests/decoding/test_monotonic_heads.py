"""Late heads are found: what each one did whilst a text was translated is computed again, and is what happened."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.conftest import crosses
from tests.helpers.decoding import policy
from tests.policy.test_learnt import LIMITS
from whilst.core.files import read_json
from whilst.core.settings import Model
from whilst.decoding.batched import translate_batch
from whilst.decoding.monotonic_heads import Head, find_heads, head_stops, heads_table, write_heads
from whilst.decoding.output import Output
from whilst.model.transformer import Translator


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
    assert heads_table(heads).row_count == 4


def test_outliers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two tokens, two layers of two heads, and all figures by hand."""
    # The last head stops 6 - 1 = 5 and 4 - 2 = 2 tokens after the mean of the others: 3.5. The second 1 and 2: 1.5.
    stops = torch.tensor([[[0, 3], [0, 6]], [[1, 4], [1, 4]]])
    done = torch.tensor([[[True, True], [True, False]], [[True, True], [True, True]]])
    monkeypatch.setattr("whilst.decoding.monotonic_heads.head_stops", lambda *_: (stops, done))
    heads = find_heads(Translator(Model(cross="monotone"), 5, 5), [[3]], [Output([], [], [])], 1)
    assert heads == [
        Head(1, 1, stop=1.5, behind=-2.5, last=0.0, forced=0.0),
        Head(1, 2, stop=4.5, behind=1.5, last=0.0, forced=0.0),
        Head(2, 1, stop=1.5, behind=-2.5, last=0.0, forced=0.0),
        Head(2, 2, stop=6.0, behind=3.5, last=0.5, forced=0.5),
    ]
    assert [head.is_outlier for head in heads] == [False, False, False, True]
    table = heads_table(heads)
    assert table.title == "1 of 4 heads stop more than 2 tokens late"
    assert [row.style for row in table.rows] == ["bold red", None, None, None], "latest first"
    write_heads(tmp_path / "heads.json", heads)
    assert read_json(tmp_path / "heads.json")["heads"][3] == dataclasses.asdict(heads[3])


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
