"""READs and WRITEs in two rows: nothing is lost or wider than the screen, and each stands below its word."""

import io
import itertools

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from whilst.core.action_rows import READ, WRITE, in_rows
from whilst.live.marks import Marks
from whilst.live.session import SentenceEnd, Word

words = st.text(alphabet="abcdeơ", min_size=1, max_size=9)
columns = st.lists(st.tuples(words, st.lists(words, max_size=9)), max_size=12)


@given(columns=columns, width=st.integers(20, 60))
def test_rows_hold_every_word_in_its_column(columns: list[tuple[str, list[str]]], width: int) -> None:
    text = in_rows([word for word, _ in columns], [below for _, below in columns], width).plain
    lines = text.splitlines()
    assert all(len(line) <= width for line in lines)
    found: list[tuple[str, list[str]]] = []
    for above, below in zip(lines[::2], lines[1::2], strict=True):
        assert above.startswith(READ)
        assert below.startswith(WRITE)
        starts = [place for place in range(len(READ), len(above)) if above[place] != " " == above[place - 1]]
        if carried := below[len(WRITE) : starts[0] if starts else None].split():  # of the last word above
            found[-1][1].extend(carried)
        for start, end in itertools.pairwise([*starts, None]):
            found.append((above[start:end].strip(), below[start:end].split()))
    assert found == columns


def test_wide_letters_keep_their_columns() -> None:
    """A column begins at the same place of the screen in both rows."""
    above, below = in_rows(["日本", "a"], [["x"], ["早い"]], 40).plain.splitlines()
    assert cell_len(above.partition("a")[0]) == cell_len(below.partition("早")[0])
    assert all(cell_len(line) <= 20 for line in in_rows(["日本語"] * 9, [["早い"] * 9] * 9, 20).plain.splitlines())


def test_what_is_drawn_at_the_end() -> None:
    out = io.StringIO()
    sink = Marks(Console(file=out, width=80, force_terminal=False))
    sink.heard("guten", 0.0)
    sink.heard("Tag", 0.5)
    sink.wrote(Word("good", 0, 2, 2), 0.5, 0.51)
    sink.heard(".", 1.0)
    sink.wrote(Word("day", 0, 3, 3), 1.0, 1.02)
    sink.heard("ja", 1.1)  # fed together with the end of the sentence
    sink.ended(SentenceEnd(0, 3, 3), 1.03)
    sink.wrote(Word("yes", 1, 4, 1), 1.1, 1.12)
    sink.ended(SentenceEnd(1, 4, 1), 1.2)
    sink.close()
    drawn = [line.rstrip() for line in out.getvalue().splitlines()]
    assert drawn[:3] == ["READ  guten  Tag   .", "WRITE        good  day", "lag 1.8 words"]
    assert drawn[3:6] == ["READ  ja", "WRITE yes", "lag 1.0 words, 1.4 on average"]
    table = " ".join(out.getvalue().split())
    for row in ("sentences 2", "words read, written 4, 3", "average lagging (words) 1.4", "20 ms, 20 ms"):
        assert row in table


def test_a_session_without_a_word_has_no_table() -> None:
    out = io.StringIO()
    Marks(Console(file=out)).close()
    assert out.getvalue() == ""


def test_a_word_that_two_sentences_share() -> None:
    """Such as one that is too long for the first: what it lets be written in the second stands below its rest."""
    out = io.StringIO()
    marks = Marks(Console(file=out, width=60))
    marks.heard("one", 0.0)
    marks.wrote(Word("eins", 0, 1, 1), 0.0, 0.1)
    marks.ended(SentenceEnd(0, 1, 1), 0.1)
    marks.wrote(Word("zwei", 1, 1, 1), 0.1, 0.2)
    marks.heard("three", 0.2)
    marks.wrote(Word("drei", 1, 2, 2), 0.2, 0.3)
    marks.ended(SentenceEnd(1, 2, 2), 0.3)
    marks.heard("four", 0.4)
    marks.wrote(Word("vier", 2, 3, 1), 0.4, 0.5)
    marks.ended(SentenceEnd(2, 3, 1), 0.5)
    marks.close()
    rows = [line.split()[1:] for line in out.getvalue().splitlines() if line.startswith(("READ", "WRITE"))]
    assert [row for row in rows if row] == [["one"], ["eins"], ["…", "three"], ["zwei", "drei"], ["four"], ["vier"]]
