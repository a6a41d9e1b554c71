"""Read words from a terminal as they are typed; a terminal delivers whole lines otherwise.

The terminal is read key by key, without echo: the display shows what is being typed. A word can be edited until
white space ends it. Ctrl-D ends the input; Ctrl-C and Ctrl-Z keep their meaning.
"""

import codecs
import contextlib
import os
import re
import signal
from collections.abc import Callable, Generator, Iterator

from whilst.core.signals import handle_signals

CHUNK = 4096  # bytes: more than one key, as text may be pasted
END, ERASE, CLEAR = "\x04", "\x7f\b", "\x15\x17"  # Ctrl-D; Backspace; Ctrl-U and Ctrl-W
_ESCAPE_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|.)?")  # an arrow key, for example


@contextlib.contextmanager
def key_by_key(fd: int) -> Iterator[None]:
    """Make the terminal deliver every key at once and show none of them, also after Ctrl-Z and fg."""
    import termios  # not on Windows

    before = termios.tcgetattr(fd)
    changed = termios.tcgetattr(fd)
    changed[3] &= ~(termios.ICANON | termios.ECHO)

    def enter() -> None:
        termios.tcsetattr(fd, termios.TCSADRAIN, changed)

    with handle_signals((signal.SIGCONT,), lambda *_: enter()):
        enter()
        try:
            yield
        finally:
            with contextlib.suppress(termios.error):  # the terminal was closed
                termios.tcsetattr(fd, termios.TCSADRAIN, before)


class WordEditor:
    """Turns keys into final text: whole words with the white space after them."""

    def __init__(self) -> None:
        self.word = ""  # being typed
        self.ended = False

    def type(self, keys: str) -> str:
        final = ""
        for key in _ESCAPE_SEQUENCE.sub("", keys):
            if key == END:
                self.ended = True
                return final + self.end()
            if key.isspace():
                final += self.end() + key
            elif key in CLEAR:
                self.word = ""
            elif key in ERASE:
                self.word = self.word[:-1]
            elif key.isprintable():
                self.word += key
        return final

    def end(self) -> str:
        """End the word and return it."""
        word, self.word = self.word, ""
        return word


def typed_chunks(fd: int, show: Callable[[str], None]) -> Generator[bytes, None, None]:
    """Yield the final text of a terminal; `show` is called with the unfinished word after every key."""
    editor, decoder = WordEditor(), codecs.getincrementaldecoder("utf-8")(errors="replace")
    try:
        with key_by_key(fd):
            while not editor.ended and (keys := os.read(fd, CHUNK)):
                final = editor.type(decoder.decode(keys))
                show(editor.word)
                if final:
                    yield final.encode()
    finally:
        show("")
    if editor.word:
        yield editor.end().encode()
