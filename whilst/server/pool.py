"""The steps of many sessions (live.py), done together: those of one kind in one call. Knows units; no words.

Each session has a place of its own. Only the places that have something to do are computed, and what a place can
hold is fixed, so neither time nor memory depends on who is silent or how long a talk has been.
"""

import abc
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence

import torch
from torch import Tensor, nn

from whilst.data.vocabulary import BOS
from whilst.live.eager import require_live
from whilst.live.session import Backend, Operation, Request
from whilst.model.cache import Cache
from whilst.model.transformer import Translator, likeliest
from whilst.policy import Decider, Policy, View


class Pool(abc.ABC):
    """One thread calls it. A call that fails has changed nothing that matters: it may be made again, for fewer."""

    together = True  # whether a call may be for several places

    @abc.abstractmethod
    def use(self, place: int, policy: str) -> None:
        """Sentences that begin from now on at this place are translated under this policy."""

    @abc.abstractmethod
    def do(self, step: Operation, asks: Sequence[tuple[int, int]]) -> list[int]:
        """One step at each of these places, with the unit to READ: the answers, as `Backend.run` gives them."""


class Single(Pool):
    """One by one, for an engine that knows no batches. If one of several failed, the others would have moved on."""

    together = False

    def __init__(self, steps: Callable[[str], Backend], places: int) -> None:
        self._make = steps
        self._wanted: list[str | None] = [None] * places
        self._policy: list[str | None] = [None] * places
        self._steps: list[Backend | None] = [None] * places

    def use(self, place: int, policy: str) -> None:
        self._wanted[place] = policy

    def do(self, step: Operation, asks: Sequence[tuple[int, int]]) -> list[int]:
        return [self._do(step, place, unit) for place, unit in asks]

    def _do(self, step: Operation, place: int, unit: int) -> int:
        wanted, steps = self._wanted[place], self._steps[place]
        if steps is None or (step is Operation.BEGIN and wanted != self._policy[place]):
            assert wanted is not None, "tell which policy to use"
            steps = self._steps[place] = self._make(wanted)
            self._policy[place] = wanted
        return steps.run(Request(step, unit))


class Batched(Pool):
    """All in one PyTorch model with one cache, a row for each place."""

    @torch.inference_mode()
    def __init__(
        self,
        model: Translator,
        policy: Callable[[str], Policy],
        places: int,
        longest: int,
        most: int,
        output: nn.Module | None = None,
    ) -> None:
        """Room for so many sentences of at most these lengths; `output` makes logits, if not the model itself."""
        require_live(model)
        self._model, self._find = model, policy
        self._logits = output or model.logits
        self.cache = model.start(places, longest, most, lazy=True)
        device = self.cache.read.device
        self._places = torch.arange(places, device=device)
        self._source = torch.zeros(places, longest, dtype=torch.long, device=device)
        self._last = torch.full_like(self._places, BOS)
        self._ahead = torch.zeros_like(self.cache.decoded)
        # The same counts as the cache's, known without asking the device.
        self._read, self._written = [0] * places, [0] * places
        self._looked = [False] * places  # whether `_ahead` holds what would be written now
        self._wanted: dict[int, Policy] = {}
        self._policy: dict[int, Policy] = {}
        self._decider: dict[int, Decider] = {}
        self._shared: dict[Hashable, Decider] = {}  # by kin

    def use(self, place: int, policy: str) -> None:
        self._wanted[place] = self._find(policy)

    @torch.inference_mode()
    def do(self, step: Operation, asks: Sequence[tuple[int, int]]) -> list[int]:
        places = [place for place, _ in asks]
        match step:
            case Operation.BEGIN:
                self._begin(places)
            case Operation.READ:
                self._reads(places, [unit for _, unit in asks])
            case Operation.DECIDE:
                return self._decide(places)
            case Operation.WRITE:
                return self._write(places)
        return [0] * len(places)

    def _rows(self, places: Sequence[int]) -> Tensor:
        return torch.tensor(places, device=self._places.device)

    def _part(self, places: Sequence[int], rows: Tensor) -> Cache:
        ends = (max(counts[place] for place in places) for counts in (self._read, self._written))
        return self.cache.part(rows, *ends)

    def _begin(self, places: list[int]) -> None:
        rows = self._rows(places)
        part = self._part(places, rows)
        part.restart()
        self.cache.put(part)
        self._last[rows] = BOS
        for place in places:
            self._read[place] = self._written[place] = 0
            self._looked[place] = False
            chosen = self._policy[place] = self._wanted[place]
            decider = self._shared.get(chosen.kin) or chosen.start(self._places)
            self._shared[chosen.kin] = self._decider[place] = decider
            one = self._rows([place])
            decider.put(one, chosen.start(one))
        used = {policy.kin for policy in self._policy.values()}
        self._shared = {kin: decider for kin, decider in self._shared.items() if kin in used}

    def _reads(self, places: list[int], units: list[int]) -> None:
        rows = self._rows(places)
        tokens = self._rows(units)[:, None]
        part = self._part(places, rows)
        self._source[rows, part.read] = tokens[:, 0]
        self._model.read(part, tokens, torch.ones_like(rows))
        self.cache.put(part)
        for place in places:
            self._read[place] += 1
            self._looked[place] = False

    def _look(self, places: list[int]) -> None:
        """See what would be written now, where that is not known."""
        places = [place for place in places if not self._looked[place]]
        if not places:
            return
        rows = self._rows(places)
        part = self._part(places, rows)
        self._ahead[rows] = self._model.look(part, self._last[rows], part.read)
        self.cache.put(part)  # where monotone heads stopped
        for place in places:
            self._looked[place] = True

    def _decide(self, places: list[int]) -> list[int]:
        self._look([place for place in places if self._policy[place].looks_ahead])
        groups: defaultdict[int, list[int]] = defaultdict(list)  # by who decides
        for place in places:
            groups[id(self._decider[place])].append(place)
        answers: dict[int, int] = {}
        for group in groups.values():
            rows = self._rows(group)
            part = self._part(group, rows)
            ahead = self._ahead[rows] if self._policy[group[0]].looks_ahead else None
            whole = self._decider[group[0]]
            decider = whole.part(rows)
            found = decider.write(View.of(part, part.read, self._source, self._last[rows], ahead))
            whole.put(rows, decider)
            answers |= zip(group, map(int, found.tolist()), strict=True)
        return [answers[place] for place in places]

    def _write(self, places: list[int]) -> list[int]:
        self._look(places)
        rows = self._rows(places)
        part = self._part(places, rows)
        ahead = self._ahead[rows]
        found = likeliest(self._logits(ahead))
        part.commit(ahead, torch.ones_like(rows, dtype=torch.bool))
        self.cache.put(part)
        self._last[rows] = found
        for place in places:
            self._written[place] += 1
            self._looked[place] = False
        return found.tolist()
