"""Oracle: follow reads that were searched for with the reference."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from whilst.core.policy_spec import PolicySpec
from whilst.policy.base import Decider, Policy, View


@dataclass(frozen=True)
class Oracle(Policy):
    """`reads[n]` belongs to sentence n of the corpus. After its end the whole source is read."""

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
        self.table = table  # (rows, longest + 1) reads, after the last one larger than any source

    def write(self, view: View) -> Tensor:
        column = view.written.clamp(max=self.table.shape[1] - 1)
        return view.read >= self.table.gather(1, column[:, None])[:, 0]

    def tensors(self) -> list[Tensor]:
        return [self.table]

    def set_tensors(self, tensors: list[Tensor]) -> None:
        [self.table] = tensors
