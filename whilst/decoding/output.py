"""Outputs of decoding, and padding of its inputs."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from whilst.data.vocabulary import EOS, PAD


@dataclass
class Output:
    """One translation in units. The end mark has a read and a time, but no unit."""

    units: list[int] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)  # g_i, the source's end mark counted
    times: list[float] = field(default_factory=list)  # milliseconds since the start of the sentence or its batch

    @property
    def sentence(self) -> list[int]:
        """The units with an end mark, as in datasets, even if the translation was cut."""
        return [*self.units, EOS]


def pad(sentences: Sequence[Sequence[int]], device: torch.device, padding: int = PAD) -> tuple[Tensor, Tensor]:
    """(rows, longest) tokens and (rows) lengths."""
    lengths = torch.tensor([len(sentence) for sentence in sentences])
    tokens = torch.full((len(sentences), int(lengths.max())), padding)
    for row, sentence in enumerate(sentences):
        tokens[row, : len(sentence)] = torch.as_tensor(sentence, dtype=torch.long)
    return tokens.to(device), lengths.to(device)


def to_outputs(log: Tensor, counts: Sequence[int], times: Sequence[float]) -> list[Output]:
    """Outputs from rows of `Lockstep.log`. `counts`: WRITEs in each row; `times`: when each step ended."""
    outputs = []
    for count, entries in zip(counts, log[:, : max(counts, default=0)].tolist(), strict=True):
        units, reads, steps = (list(column) for column in zip(*entries[:count], strict=True))
        written = [unit for unit in units if unit != EOS]
        outputs.append(Output(written, reads, [times[step] for step in steps]))
    return outputs
