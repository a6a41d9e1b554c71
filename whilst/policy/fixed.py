"""Policies whose reads are known before decoding: full, wait-K, diagonal-K, and oracle.

The diagonal is the baseline for adaptive policies: it needs no agent but, unlike wait-k, has the right slope.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from whilst.core.policy_spec import PolicySpec, fixed_reads
from whilst.policy.base import Decider, Futures, Policy, StatelessPolicy, View


@dataclass(frozen=True)
class Full(StatelessPolicy):
    """Always READ. The decoding loop WRITEs once the source is finished."""

    spec = PolicySpec("full")

    def write(self, view: View) -> Tensor:
        return torch.zeros_like(view.read, dtype=torch.bool)

    def reads_until_write(self, futures: Futures) -> Tensor:
        return torch.full_like(futures.now.read, 1 << 30)  # the whole source in one step


@dataclass(frozen=True)
class WaitK(StatelessPolicy):
    """g_i = k + i - 1."""

    k: int

    @property
    def spec(self) -> PolicySpec:
        return PolicySpec("wait", str(self.k))

    def write(self, view: View) -> Tensor:
        return view.read >= fixed_reads(view.written, self.k)


@dataclass(frozen=True)
class Diagonal(StatelessPolicy):
    """g_i = k + (i - 1) J / I, rounded down."""

    k: int
    length_ratio: tuple[int, int]  # J and I, not their quotient: integers round the same on every device

    @property
    def spec(self) -> PolicySpec:
        return PolicySpec("diagonal", str(self.k))

    def write(self, view: View) -> Tensor:
        return view.read >= fixed_reads(view.written, self.k, self.length_ratio)


@dataclass(frozen=True)
class Oracle(Policy):
    """Follow reads that were searched with the reference.

    `reads[n]` belongs to sentence n of the corpus. After the end of these reads the whole source is read.
    """

    identity: PolicySpec
    reads: Sequence[Sequence[int]]

    @property
    def spec(self) -> PolicySpec:
        return self.identity

    def start(self, sentences: Tensor) -> Decider:
        chosen = [self.reads[number] for number in sentences.tolist()]
        table = torch.full((len(chosen), max(map(len, self.reads)) + 1), 1 << 30)
        for row, reads in enumerate(chosen):
            table[row, : len(reads)] = torch.as_tensor(reads)
        return OracleDecider(table.to(sentences.device))


class OracleDecider(Decider):
    def __init__(self, table: Tensor) -> None:
        self.table = table  # (rows, longest + 1) reads; columns after the last one exceed the length of any source

    def write(self, view: View) -> Tensor:
        column = view.written.clamp(max=self.table.shape[1] - 1)
        return view.read >= self.table.gather(1, column[:, None])[:, 0]

    def tensors(self) -> list[Tensor]:
        return [self.table]

    def set_tensors(self, tensors: list[Tensor]) -> None:
        [self.table] = tensors
