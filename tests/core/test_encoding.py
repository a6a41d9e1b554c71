"""Output on terminals whose encoding lacks letters of the translation."""

import io

import pytest

from whilst.cli.main import write_utf8


class Raw(io.BytesIO):
    """The buffer below a text stream; a terminal or not."""

    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal


@pytest.mark.parametrize(("is_terminal", "written"), [(False, "ngườ".encode()), (True, b"ng??")])
def test_missing_letters_become_utf8_or_question_marks(is_terminal: bool, written: bytes) -> None:
    raw = Raw(is_terminal)
    stream = io.TextIOWrapper(raw, encoding="ascii")
    write_utf8(stream)
    stream.write("ngườ")
    stream.flush()
    assert raw.getvalue() == written
