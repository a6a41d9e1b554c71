"""Few shapes for padded batches: sentences of similar length together, in a box that is always the same size.

A GPU records an update once for each shape. Knows lengths and sizes only, neither tokens nor tensors.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

STEP = 8  # lengths are multiples of it: attention with a mask is fastest so
MOST = 10  # shapes: more would fill up better, but each has to be recorded


def choose_lengths(lengths: Ints, most: int = MOST) -> Ints:
    """At most so many lengths, rising, such that padding each sentence to the next of them costs little.

    Begins with all multiples of STEP; whichever is cheapest to do without is left out, time and again.
    """
    tops = np.arange(STEP, lengths.max() + STEP, STEP)
    while True:
        counts = np.bincount(np.searchsorted(tops, lengths), minlength=len(tops))
        tops, counts = tops[counts > 0], counts[counts > 0]  # the last is never empty
        if len(tops) <= most:
            return tops
        tops = np.delete(tops, np.argmin(counts[:-1] * np.diff(tops)))


@dataclass(frozen=True)
class Shapes:
    """The boxes of a corpus: `rows` sentences of up to `length` units on either side."""

    lengths: Ints  # rising
    tokens: int  # that a box holds on each side

    def rows(self, number: int) -> int:
        return max(1, self.tokens // int(self.lengths[number]))

    def of(self, sizes: Ints) -> tuple[int, int]:
        """(rows, length) of the smallest box that holds sentences of these sizes."""
        for number, length in enumerate(self.lengths):
            if length >= sizes.max() and self.rows(number) >= len(sizes):
                return self.rows(number), int(length)
        raise ValueError(f"{len(sizes)} sentences of up to {sizes.max()} units do not fit into any box")

    def cut(self, order: Ints, sizes: Ints) -> list[Ints]:
        """An order of sentences as batches, each for one box. Too few to fill one join the next longer ones."""
        numbers = np.searchsorted(self.lengths, sizes)
        batches, rest = [], order[:0]
        for number in range(len(self.lengths)):
            mine = np.concatenate([rest, order[numbers == number]])
            rows = self.rows(number)
            full = len(mine) - len(mine) % rows
            batches += np.split(mine[:full], np.arange(rows, full, rows)) if full else []
            rest = mine[full:]
        return [*batches, rest] if len(rest) else batches
