"""A server's model on PyTorch: operations of many sessions in one batch. Knows units, not words.

Each session has a slot. Only slots with work are computed, and the capacity of a slot is fixed, so neither time nor
memory depends on silent sessions or on how long a session has been.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence

import torch
from torch import Tensor, nn

from whilst.core.errors import UserError
from whilst.core.policy_spec import parse_live
from whilst.data.vocabulary import EOS
from whilst.decoding.offline import retranslate
from whilst.decoding.state import DecodingState
from whilst.live.session import Operation, Request
from whilst.live.torch_backend import Offline, OfflineBackend, TorchModel
from whilst.model.checkpoint import LoadedRun
from whilst.model.prepacked import PRECISIONS, can_prepack, prepack
from whilst.model.run_folder import BUNDLE
from whilst.model.transformer import Translator
from whilst.policy import Decider, Policy
from whilst.server.served import Pool

PART = 32  # slots that attend together: their keys and values fit into the L2 cache of a core


def parted(slots: Sequence[int], counts: Mapping[int, int]) -> list[list[int]]:
    """By rising count: what is attended to is copied up to the longest of a part."""
    rising = sorted(slots, key=counts.__getitem__)
    return [rising[start : start + PART] for start in range(0, len(rising), PART)]


class BatchPool(Pool):
    """One PyTorch model with one state, a row for each slot."""

    @torch.inference_mode()
    def __init__(
        self, model: Translator, policy: Callable[[str], Policy], slots: int, max_source: int, max_target: int
    ) -> None:
        """For sentences of at most these lengths."""
        self._find = policy
        self.state = DecodingState(model, model.start(slots, max_source, max_target, lazy=True))
        self._rows = torch.arange(slots, device=self.state.last.device)
        self._lookahead = torch.zeros_like(self.state.cache.decoded)
        self._ahead: set[int] = set()  # slots with a lookahead computed since their last action
        # The cache's counts by slot, without waiting for the device.
        self._read, self._written = Counter[int](), Counter[int]()
        self._policy: dict[int, Policy] = {}
        self._deciders: dict[Hashable, Decider] = {}  # by batch_key

    def use(self, slot: int, policy: str) -> None:
        self._policy[slot] = self._find(policy)

    @torch.inference_mode()
    def do(self, requests: Sequence[tuple[int, Request]]) -> list[int]:
        slots, operation = [slot for slot, _ in requests], requests[0][1].operation
        if operation is Operation.DECIDE:
            return self._decide(dict(requests))
        if operation is Operation.READ:
            return self._do_read(dict(requests))
        if operation is Operation.WRITE:
            self._look_ahead(slots)
        rows = self._tensor(slots)
        subset, units = self._subset(slots, rows), None
        match operation:
            case Operation.BEGIN:
                subset.restart()
                self._begin(slots)
            case Operation.WRITE:
                subset.lookahead = self._lookahead[rows]
                subset.ban([request.banned for _, request in requests])
                units = subset.write()
                self._written.update(slots)
        self.state.update(subset)
        self._ahead.difference_update(slots)
        return [0] * len(slots) if units is None else units.tolist()

    def _do_read(self, requests: dict[int, Request]) -> list[int]:
        parts = parted(list(requests), self._read)
        subsets = [self._subset(part, self._tensor(part)) for part in parts]
        for part, subset in zip(parts, subsets, strict=True):
            subset.read(self._tensor([requests[slot].unit for slot in part]))
        for subset in subsets:  # once all have succeeded
            self.state.update(subset)
        self._read.update(requests.keys())
        self._ahead.difference_update(requests)
        return [0] * len(requests)

    def _tensor(self, numbers: Sequence[int]) -> Tensor:
        return torch.tensor(numbers, device=self._rows.device)

    def _subset(self, slots: Sequence[int], rows: Tensor) -> DecodingState:
        ends = (max(counts[slot] for slot in slots) for counts in (self._read, self._written))
        return self.state.subset(rows, *ends)

    def _begin(self, slots: list[int]) -> None:
        for slot in slots:
            self._read[slot] = self._written[slot] = 0
            policy = self._policy[slot]
            key, row = policy.batch_key, self._tensor([slot])
            if key not in self._deciders:
                self._deciders[key] = policy.start(self._rows)
            self._deciders[key].update(row, policy.start(row))
        used = {policy.batch_key for policy in self._policy.values()}
        self._deciders = {key: decider for key, decider in self._deciders.items() if key in used}

    def _look_ahead(self, slots: list[int]) -> None:
        for part in parted([slot for slot in slots if slot not in self._ahead], self._read):
            rows = self._tensor(part)
            subset = self._subset(part, rows)
            self._lookahead[rows] = subset.look_ahead()
            self.state.update(subset)  # where monotonic heads stopped
            self._ahead.update(part)

    def _decide(self, requests: dict[int, Request]) -> list[int]:
        self._look_ahead([slot for slot in requests if self._policy[slot].needs_lookahead])
        groups: defaultdict[Hashable, list[int]] = defaultdict(list)
        for slot in requests:
            groups[self._policy[slot].batch_key].append(slot)
        decisions: dict[int, int] = {}
        for key, group in groups.items():
            rows, needs_lookahead = self._tensor(group), self._policy[group[0]].needs_lookahead
            subset = self._subset(group, rows)
            subset.lookahead = self._lookahead[rows] if needs_lookahead else None
            subset.announce(self._tensor([requests[slot].unit for slot in group]))
            subset.ban([requests[slot].banned for slot in group])
            decider = self._deciders[key].subset(rows)
            write = decider.write(subset.view(needs_lookahead))
            self._deciders[key].update(rows, decider)
            decisions |= zip(group, map(int, write.tolist()), strict=True)
        return [decisions[slot] for slot in requests]


class OfflinePool(Pool):
    """Sessions of a model that needs whole sentences, which are translated anew in one batch."""

    def __init__(self, opened: Offline) -> None:
        self._opened = opened
        self._backends: dict[int, OfflineBackend] = {}  # by slot

    def use(self, slot: int, policy: str) -> None:
        rule = self._opened.find(self._opened.policy_of(policy))
        self._backends[slot] = self._opened.make_backend(rule, self._opened.text)

    def do(self, requests: Sequence[tuple[int, Request]]) -> list[int]:
        if requests[0][1].operation in (Operation.DECIDE, Operation.WRITE):
            whole = [slot for slot, request in requests if request.unit == EOS]  # words, where it is a decision
            retranslate(self._opened.model, [self._backends[slot].sentence for slot in whole])
        return [self._backends[slot].run(request) for slot, request in requests]


def prepack_weights(trained: LoadedRun, precision: str) -> tuple[str, nn.Module | None]:
    """Reorder the weights for the CPU. Returns their precision, and the output layer if not the model's own.

    `precision`: fp32, fp16, or empty for the default.
    """
    model = trained.model
    # A bundle's weights are in half precision as they are: nothing is lost, and it is faster.
    halves = (trained.path / BUNDLE).is_file() and can_prepack(model, "fp16")
    precision = precision or ("fp16" if halves else "fp32")
    if can_prepack(model, precision):
        layer = PRECISIONS[precision]
        for part in filter(None, (model, trained.agent)):
            prepack(part, layer)
        return precision, layer(model.target_embedding.weight, None)
    if precision != "fp32":
        raise UserError(f"--precision {precision}: not available on this machine; leave it out")
    return precision, None


def batch_pool(opened: TorchModel, slots: int) -> BatchPool:
    def policy(name: str) -> Policy:
        return opened.find(parse_live(name))

    return BatchPool(opened.trained.model, policy, slots, *opened.text.longest)
