"""Operations of many sessions at once. Knows units, not words.

Each session has a slot. Only slots with work are computed, and the capacity of a slot is fixed, so neither time nor
memory depends on silent sessions or on how long a session has been.
"""

import abc
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence

import torch
from torch import Tensor, nn

from whilst.decoding.state import DecodingState
from whilst.live.session import Backend, Operation, Request
from whilst.live.torch_backend import require_live
from whilst.model.transformer import Translator
from whilst.policy import Decider, Policy


class Pool(abc.ABC):
    """Called by one thread. A call that fails may be made again, for fewer slots."""

    together = True  # whether a call may be for several slots

    @abc.abstractmethod
    def use(self, slot: int, policy: str) -> None:
        """Translate sentences that begin in this slot from now on under this policy."""

    @abc.abstractmethod
    def do(self, operation: Operation, requests: Sequence[tuple[int, int]]) -> list[int]:
        """One operation in each of these slots, with the unit to READ; the results of `Backend.run`."""


class SinglePool(Pool):
    """A backend for each slot, one after the other."""

    together = False  # after a failure, the slots before it would have moved on

    def __init__(self, make: Callable[[str], Backend], slots: int) -> None:
        self._make = make
        self._wanted: list[str | None] = [None] * slots
        self._policy: list[str | None] = [None] * slots
        self._backends: list[Backend | None] = [None] * slots

    def use(self, slot: int, policy: str) -> None:
        self._wanted[slot] = policy

    def do(self, operation: Operation, requests: Sequence[tuple[int, int]]) -> list[int]:
        return [self._do(operation, slot, unit) for slot, unit in requests]

    def _do(self, operation: Operation, slot: int, unit: int) -> int:
        wanted, backend = self._wanted[slot], self._backends[slot]
        if backend is None or (operation is Operation.BEGIN and wanted != self._policy[slot]):
            assert wanted is not None, "`use` comes first"
            backend = self._backends[slot] = self._make(wanted)
            self._policy[slot] = wanted
        return backend.run(Request(operation, unit))


class BatchPool(Pool):
    """One PyTorch model with one state, a row for each slot."""

    @torch.inference_mode()
    def __init__(
        self,
        model: Translator,
        policy: Callable[[str], Policy],
        slots: int,
        max_source: int,
        max_target: int,
        output: nn.Module | None = None,
    ) -> None:
        """For sentences of at most these lengths; `output`: the output layer, if not the model's own."""
        require_live(model)
        self._find = policy
        self.state = DecodingState(model, slots, max_source, max_target, lazy=True, logits=output)
        self._rows = torch.arange(slots, device=self.state.last.device)
        self._lookahead = torch.zeros_like(self.state.cache.decoded)
        self._has_lookahead = [False] * slots
        self._read, self._written = [0] * slots, [0] * slots  # the cache's counts, without waiting for the device
        self._wanted: dict[int, Policy] = {}
        self._policy: dict[int, Policy] = {}
        self._key: dict[int, Hashable] = {}  # batch_key of the slot's policy
        self._deciders: dict[Hashable, Decider] = {}  # by batch_key

    def use(self, slot: int, policy: str) -> None:
        self._wanted[slot] = self._find(policy)

    @torch.inference_mode()
    def do(self, operation: Operation, requests: Sequence[tuple[int, int]]) -> list[int]:
        slots = [slot for slot, _ in requests]
        match operation:
            case Operation.BEGIN:
                self._begin(slots)
            case Operation.READ:
                self._read_units(slots, [unit for _, unit in requests])
            case Operation.DECIDE:
                return self._decide(slots)
            case Operation.WRITE:
                return self._write(slots)
        return [0] * len(slots)

    def _tensor(self, numbers: Sequence[int]) -> Tensor:
        return torch.tensor(numbers, device=self._rows.device)

    def _subset(self, slots: Sequence[int], rows: Tensor) -> DecodingState:
        ends = (max(counts[slot] for slot in slots) for counts in (self._read, self._written))
        return self.state.subset(rows, *ends)

    def _begin(self, slots: list[int]) -> None:
        subset = self._subset(slots, self._tensor(slots))
        subset.restart()
        self.state.update(subset)
        for slot in slots:
            self._read[slot] = self._written[slot] = 0
            self._has_lookahead[slot] = False
            policy = self._policy[slot] = self._wanted[slot]
            key, row = policy.batch_key, self._tensor([slot])
            self._key[slot] = key
            if key not in self._deciders:
                self._deciders[key] = policy.start(self._rows)
            self._deciders[key].update(row, policy.start(row))
        used = set(self._key.values())
        self._deciders = {key: decider for key, decider in self._deciders.items() if key in used}

    def _read_units(self, slots: list[int], units: list[int]) -> None:
        subset = self._subset(slots, self._tensor(slots))
        subset.read(self._tensor(units))
        self.state.update(subset)
        for slot in slots:
            self._read[slot] += 1
            self._has_lookahead[slot] = False

    def _look_ahead(self, slots: list[int]) -> None:
        slots = [slot for slot in slots if not self._has_lookahead[slot]]
        if slots:
            rows = self._tensor(slots)
            subset = self._subset(slots, rows)
            self._lookahead[rows] = subset.look_ahead()
            self.state.update(subset)  # where monotone heads stopped
            for slot in slots:
                self._has_lookahead[slot] = True

    def _decide(self, slots: list[int]) -> list[int]:
        self._look_ahead([slot for slot in slots if self._policy[slot].needs_lookahead])
        groups: defaultdict[Hashable, list[int]] = defaultdict(list)
        for slot in slots:
            groups[self._key[slot]].append(slot)
        decisions: dict[int, int] = {}
        for key, group in groups.items():
            rows, needs_lookahead = self._tensor(group), self._policy[group[0]].needs_lookahead
            subset = self._subset(group, rows)
            subset.lookahead = self._lookahead[rows] if needs_lookahead else None
            decider = self._deciders[key].subset(rows)
            write = decider.write(subset.view(needs_lookahead))
            self._deciders[key].update(rows, decider)
            decisions |= zip(group, map(int, write.tolist()), strict=True)
        return [decisions[slot] for slot in slots]

    def _write(self, slots: list[int]) -> list[int]:
        self._look_ahead(slots)
        rows = self._tensor(slots)
        subset = self._subset(slots, rows)
        subset.lookahead = self._lookahead[rows]
        units = subset.write()
        self.state.update(subset)
        for slot in slots:
            self._written[slot] += 1
            self._has_lookahead[slot] = False
        return units.tolist()
