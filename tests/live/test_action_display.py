"""READs and WRITEs in two rows: no word is lost, no row too wide, each word is below the right source word."""

import io
import itertools

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from whilst.core.action_rows import READ, WRITE, action_rows
from whilst.live.display import Display
from whilst.live.session import SentenceEnd, Word

words = st.text(alphabet="abcdeơ", min_size=1, max_size=9)
columns = st.lists(st.tuples(words, st.lists(words, max_size=9)), max_size=12)


@given(columns=columns, width=st.integers(20, 60))
def test_rows_hold_every_word_in_its_column(columns: list[tuple[str, list[str]]], width: int) -> None:
    text = action_rows([word for word, _ in columns], [below for _, below in columns], width).plain
    lines = text.splitlines()
    assert all(len(line) <= width for line in lines)
    found: list[tuple[str, list[str]]] = []
    for above, below in zip(lines[::2], lines[1::2], strict=True):
        assert above.startswith(READ)
        assert below.startswith(WRITE)
        starts = [n for n in range(len(READ), len(above)) if above[n] != " " == above[n - 1]]
        if carried := below[len(WRITE) : starts[0] if starts else None].split():  # carried over from the last word
            found[-1][1].extend(carried)
        for start, end in itertools.pairwise([*starts, None]):
            found.append((above[start:end].strip(), below[start:end].split()))
    assert found == columns


def test_wide_letters_keep_their_columns() -> None:
    """A column starts at the same cell in both rows."""
    above, below = action_rows(["日本", "a"], [["x"], ["早い"]], 40).plain.splitlines()
    assert cell_len(above.partition("a")[0]) == cell_len(below.partition("早")[0])
    assert all(
        cell_len(line) <= 20 for line in action_rows(["日本語"] * 9, [["早い"] * 9] * 9, 20).plain.splitlines()
    )


def test_rows_and_lags() -> None:
    out = io.StringIO()
    display = Display(Console(file=out, width=80, force_terminal=False), show_actions=True)
    display.source_word("guten", 0.0)
    display.source_word("Tag", 0.5)
    display.target_word(Word("good", 0, 2, 2), 0.5, 0.51)
    display.source_word(".", 1.0)
    display.target_word(Word("day", 0, 3, 3), 1.0, 1.02)
    display.source_word("ja", 1.1)  # read before the sentence ended
    display.sentence_end(SentenceEnd(0, 3, 3), 1.03)
    display.target_word(Word("yes", 1, 4, 1), 1.1, 1.12)
    display.sentence_end(SentenceEnd(1, 4, 1), 1.2)
    display.close()
    drawn = [line.rstrip() for line in out.getvalue().splitlines()]
    assert drawn[:3] == ["READ  guten  Tag   .", "WRITE        good  day", "lag 1.8 words"]
    assert drawn[3:6] == ["READ  ja", "WRITE yes", "lag 1.0 words, 1.4 on average"]
    assert len(drawn) == 6


def test_a_word_split_between_two_sentences() -> None:
    """What is written for its second part is below an ellipsis."""
    out = io.StringIO()
    display = Display(Console(file=out, width=60), show_actions=True)
    display.source_word("one", 0.0)
    display.target_word(Word("eins", 0, 1, 1), 0.0, 0.1)
    display.sentence_end(SentenceEnd(0, 1, 1), 0.1)
    display.target_word(Word("zwei", 1, 1, 1), 0.1, 0.2)
    display.source_word("three", 0.2)
    display.target_word(Word("drei", 1, 2, 2), 0.2, 0.3)
    display.sentence_end(SentenceEnd(1, 2, 2), 0.3)
    display.source_word("four", 0.4)
    display.target_word(Word("vier", 2, 3, 1), 0.4, 0.5)
    display.sentence_end(SentenceEnd(2, 3, 1), 0.5)
    display.close()
    rows = [line.split()[1:] for line in out.getvalue().splitlines() if line.startswith(("READ", "WRITE"))]
    assert [row for row in rows if row] == [["one"], ["eins"], ["…", "three"], ["zwei", "drei"], ["four"], ["vier"]]
