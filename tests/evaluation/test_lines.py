"""Lines of ours are told apart by colour and marker, and variants from their system by being less of the same."""

from colorsys import rgb_to_hls

import pytest
from matplotlib.colors import to_rgb

from whilst.evaluation.lines import COLOURS, Line, pale, strokes, system_colour


def systems(count: int, variants: int = 0) -> list[Line]:
    others = [Line(f"threshold-0.{number}", []) for number in range(variants)]
    return [Line(f"system {number}", [], others) for number in range(count)]


def hue(colour: str) -> float:
    return rgb_to_hls(*to_rgb(colour))[0]


def lightness(colour: str) -> float:
    return rgb_to_hls(*to_rgb(colour))[1]


def test_systems_have_colours_of_their_own_however_many_variants_there_are() -> None:
    looks = [stroke for _, stroke in strokes(systems(len(COLOURS), 4)) if not stroke.is_variant]
    assert [stroke.colour for stroke in looks] == list(COLOURS)
    many = [(stroke.colour, stroke.marker) for _, stroke in strokes(systems(20))]
    assert len(set(many)) == 20, "where a colour comes again, the marker is another"


def test_a_system_has_its_colour_in_every_figure() -> None:
    names = ["full-sentence", "bs-simt (multi-path)", "multi-path", "multi-path (diagonal)", "wait-k", "mma"]
    names.append("bs-simt")
    first, again = (
        {line.name: stroke.colour for line, stroke in strokes([Line(name, []) for name in order])}
        for order in (names, names[5::-1])
    )
    assert len(set(first.values())) == len(names), "a second of one kind takes a colour that nobody has"
    assert all(first[name] == colour for name, colour in again.items())
    assert system_colour("bs-simt, not fine-tuned") == first["bs-simt (multi-path)"] == COLOURS[0]
    assert system_colour("bs-simt (multi-path) oracle") == COLOURS[1]
    assert system_colour("translation by hand") is None


def test_variants_follow_their_system_thinner_paler_and_with_other_markers() -> None:
    found = list(strokes(systems(2, 3)))
    assert [line.name for line, _ in found[:5]] == ["system 0", *(f"threshold-0.{n}" for n in range(3)), "system 1"]
    for first in (0, 4):
        (_, system), *variants = found[first : first + 4]
        assert len({system.marker, *(stroke.marker for _, stroke in variants)}) == 4
        for _, stroke in variants:
            assert stroke.is_variant
            assert stroke.width < system.width
            assert stroke.size < system.size
            assert stroke.weight < system.weight
            assert lightness(stroke.colour) > lightness(system.colour)
            assert hue(stroke.colour) == pytest.approx(hue(system.colour), abs=0.01)


def test_pale_goes_from_the_colour_to_white() -> None:
    assert pale("#0072b2", 0) == "#0072b2"
    assert pale("#0072b2", 1) == "#ffffff"
    assert pale("#000000") == pale("#000000", 0.5) == "#808080"
