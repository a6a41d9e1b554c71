"""Labels stay beside their points and keep off lines, off each other and inside the frame where they can."""

from collections.abc import Sequence

import numpy as np
import pytest

from whilst.evaluation.placing import AROUND, GAPS, Box, Label, dots, place

FRAME = Box(0, 0, 400, 300)
EMPTY = np.zeros((0, 2))


def line(*points: tuple[float, float]) -> tuple[np.ndarray, float]:
    return np.array(points, dtype=float), 1.0


def placed(labels: list[Label], lines: Sequence[tuple[np.ndarray, float]] = (), frame: Box = FRAME) -> list[Box]:
    """All of them, and each must have a place."""
    boxes = place(labels, lines, frame)
    assert None not in boxes
    return [box for box in boxes if box]


def test_the_first_side_is_taken_where_there_is_room() -> None:
    label = Label(200, 150, 40, 12)
    assert place([label], [], FRAME) == [label.at(AROUND[0], GAPS[0])]
    assert label.at(AROUND[0], GAPS[0]).right <= 200
    assert label.at(AROUND[0], GAPS[0]).low >= 150


def test_a_line_where_the_label_would_be_drives_it_away() -> None:
    label = Label(200, 150, 40, 12)
    through = line((0, 160), (400, 160))
    (box,) = placed([label], [through])
    assert box.count(dots(through[0])) == 0
    assert label.at(AROUND[0], GAPS[0]).count(dots(through[0])) > 0


def test_labels_of_one_point_do_not_overlap() -> None:
    boxes = placed([Label(200, 150, 40, 12)] * 6)
    assert not any(a.overlaps(b) for n, a in enumerate(boxes) for b in boxes[:n])


def test_where_there_is_no_room_left_a_label_has_no_place() -> None:
    """Later ones give way, and what has no place takes none."""
    crowd = [Label(200, 150, 40, 12)] * 60
    found = place([*crowd, Label(20, 20, 30, 12)], [], FRAME)
    boxes = [box for box in found if box]
    assert len(AROUND) <= len(boxes) < 60
    assert found[0] is not None
    assert found[-1] is not None
    assert not any(a.overlaps(b) for n, a in enumerate(boxes) for b in boxes[:n])
    assert place([Label(200, 150, 900, 12)], [], FRAME) == [None], "wider than the frame"


@pytest.mark.parametrize("corner", [(0, 0), (400, 0), (0, 300), (400, 300), (200, 300)])
def test_labels_stay_inside(corner: tuple[int, int]) -> None:
    (box,) = placed([Label(*corner, 40, 12)])
    assert FRAME.holds(box)


def test_where_a_line_must_be_covered_it_is_the_paler_one() -> None:
    label = Label(200, 150, 40, 12, sides=((0, 1), (0, -1)))

    def thick(low: int, weight: float) -> list[tuple[np.ndarray, float]]:
        return [(line((0, y), (400, y))[0], weight) for y in range(low, low + 40, 3)]

    (box,) = placed([label], [*thick(152, 3.0), *thick(110, 1.0)])
    assert box.high < 150


def test_a_line_is_dense_in_dots_and_a_point_is_one() -> None:
    found = dots(np.array([(0.0, 0.0), (30.0, 40.0)]))
    assert len(found) >= 25
    assert np.allclose(found[:, 0] * 4, found[:, 1] * 3)
    assert dots(np.array([(1.0, 2.0)])).tolist() == [[1.0, 2.0]]
    assert len(dots(EMPTY)) == 0


@pytest.mark.parametrize(("far", "gap"), [(22, GAPS[1]), (42, GAPS[2])])
def test_a_label_goes_no_further_than_it_must(far: float, gap: float) -> None:
    """Thick lines up to this far around the point: the nearest place beyond is taken."""
    label = Label(200, 150, 40, 12)
    rows = [line((200 - far, y), (200 + far, y)) for y in np.arange(150 - far / 2, 150 + far / 2, 2)]
    heavy = [(points, 3.0) for points, _ in rows]
    (box,) = placed([label], heavy)
    assert box in [label.at(side, gap) for side in AROUND]
    (box,) = placed([label], heavy[:1])
    assert box in [label.at(side, GAPS[0]) for side in AROUND]
