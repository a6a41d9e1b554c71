"""The quality/latency figure: at most six lines, the same colour for a system."""

from pathlib import Path

from whilst.evaluation.curves import Point
from whilst.evaluation.figure import COLOURS, GREY, MAX_LINES, Line, _colours, choose, draw

RANKED = list(COLOURS)


def line(role: str, points: int = 2, **kind: bool) -> Line:
    return Line(role, [Point(f"k={n}", 1.0 + 3 * n, 20.0 + n) for n in range(points)], role, **kind)


def test_the_most_important_lines_are_drawn_and_one_of_the_paper() -> None:
    ours = [line(role) for role in reversed(RANKED)]
    assert [one.name for one in choose(ours)] == RANKED[:MAX_LINES]
    references = [line("mma", is_reference=True), line("bs-simt", is_reference=True)]
    chosen = choose([*references, *ours])
    assert [(one.name, one.is_reference) for one in chosen[-2:]] == [(RANKED[4], False), ("bs-simt", True)]
    assert choose([*references, ours[0]]) == [ours[0], references[1], references[0]]


def test_variants_and_lone_points_come_last() -> None:
    others = [line("mma", is_variant=True), line("bs-simt", points=1), line("align"), line("wait-k")]
    assert [one.name for one in choose(others)] == ["wait-k", "align", "bs-simt", "mma"]
    height = Line("full-sentence", [Point("", None, 30.0)], "full-sentence")
    assert choose([line("bs-simt", points=1), height])[0] is height


def test_a_system_has_its_colour_in_every_figure() -> None:
    assert _colours([line("mma"), line("bs-simt")]) == [COLOURS["mma"], COLOURS["bs-simt"]]
    twice = _colours([line("bs-simt"), line("bs-simt"), line("align"), line("bs-simt", is_reference=True)])
    assert (twice[0], twice[-1]) == (COLOURS["bs-simt"], GREY)
    assert len(set(twice)) == 4


def test_the_figure_is_drawn(tmp_path: Path) -> None:
    lines = [line("bs-simt", 4), Line("full", [Point("", None, 19.0)], "full-sentence")]
    assert draw(lines, "title", tmp_path / "curve") == lines
    svg = (tmp_path / "curve.svg").read_text(encoding="utf-8")
    assert "<!-- full -->" in svg, "its name in the legend"
    assert "<dc:date>" not in svg
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
