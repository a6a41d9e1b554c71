"""Few shapes for padded batches: sentences of similar length go into a batch of a fixed shape.

A GPU records one graph of an update for each shape.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

LENGTH_MULTIPLE = 8  # masked attention is fastest with such lengths
MAX_BUCKETS = 10  # more would need less padding, but each has to be recorded


def bucket_lengths(lengths: Ints, most: int = MAX_BUCKETS) -> Ints:
    """At most `most` rising lengths, so that padding each sentence to the next of them costs little.

    Starts with all multiples of LENGTH_MULTIPLE and removes the one that adds the least padding, again and again.
    """
    tops = np.arange(LENGTH_MULTIPLE, lengths.max() + LENGTH_MULTIPLE, LENGTH_MULTIPLE)
    while True:
        counts = np.bincount(np.searchsorted(tops, lengths), minlength=len(tops))
        tops, counts = tops[counts > 0], counts[counts > 0]  # the last is never empty
        if len(tops) <= most:
            return tops
        tops = np.delete(tops, np.argmin(counts[:-1] * np.diff(tops)))


@dataclass(frozen=True)
class Buckets:
    """The shapes for a corpus: `rows` sentences of up to `length` units on either side."""

    lengths: Ints  # rising
    tokens: int  # per batch and side

    def rows(self, bucket: int) -> int:
        return max(1, self.tokens // int(self.lengths[bucket]))

    def shape_for(self, sizes: Ints) -> tuple[int, int]:
        """(rows, length) of the smallest bucket that holds sentences of these sizes."""
        for bucket, length in enumerate(self.lengths):
            if length >= sizes.max() and self.rows(bucket) >= len(sizes):
                return self.rows(bucket), int(length)
        raise ValueError(f"{len(sizes)} sentences of up to {sizes.max()} units do not fit into any bucket")

    def batches(self, order: Ints, sizes: Ints) -> list[Ints]:
        """Divide an order of sentences into batches, each for one bucket; leftovers join the next longer bucket."""
        buckets = np.searchsorted(self.lengths, sizes)
        batches, rest = [], order[:0]
        for bucket in range(len(self.lengths)):
            mine = np.concatenate([rest, order[buckets == bucket]])
            rows = self.rows(bucket)
            full = len(mine) - len(mine) % rows
            batches += np.split(mine[:full], np.arange(rows, full, rows)) if full else []
            rest = mine[full:]
        return [*batches, rest] if len(rest) else batches
