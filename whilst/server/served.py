"""What a server translates with: a model, its latencies, and the pool that runs it. PyTorch only if it is used."""

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec

from whilst.core.console import log
from whilst.core.errors import UserError
from whilst.core.policy_spec import LATENCIES, parse_live
from whilst.live.loading import LiveModel, ModelOptions, open_model
from whilst.live.session import Backend, Operation, Request, TextPipeline

# Engines, and the precisions of their weights with the default first.
ENGINES = {"batch": ("fp32", "fp16"), "single": ("fp32", "fp16"), "onnx": ("int8", "fp32")}


def default_engine() -> str:
    return "batch" if find_spec("torch") else "onnx"


@dataclass(frozen=True)
class EngineOptions:
    """How the model is run."""

    # batch: PyTorch, all sessions in one batch; single: PyTorch, one by one; onnx: the CPU engine, one by one
    engine: str = field(default_factory=default_engine)
    precision: str = ""  # empty: the engine's default
    device: str = "cpu"
    threads: int = 1

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise UserError(f"--engine {self.engine}: write {', '.join(ENGINES)}")
        if self.precision not in ("", *ENGINES[self.engine]):
            known = " or ".join(ENGINES[self.engine])
            raise UserError(f"--precision {self.precision}: with --engine {self.engine} it is {known}")

    @property
    def weights(self) -> str:
        return self.precision or ENGINES[self.engine][0]


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


@dataclass(frozen=True)
class Served:
    name: str
    source: str
    target: str
    text: TextPipeline
    latencies: dict[str, str]  # low, medium, high -> a policy's name
    check: Callable[[str], object]  # a policy's name: a UserError for one that this model does not have
    pool: Callable[[int], Pool]  # for so many sessions
    precision: str  # of the weights

    def policy(self, latency: str) -> str:
        """The canonical name of the policy for a latency or a policy's name."""
        name = self.latencies.get(latency) or str(parse_live(latency))
        self.check(name)
        return name


def serve_model(model: str, overrides: Sequence[str], how: EngineOptions) -> Served:
    """By its name. All policies share the model that low, medium and high are for."""
    engine = "onnx" if how.engine == "onnx" else "torch"
    precision = how.weights if engine == "onnx" else "int8"
    opened = open_model(
        ModelOptions(model, "medium", engine, precision, tuple(overrides), how.device, threads=how.threads), log
    )
    if engine == "torch":
        from whilst.server.torch_pool import serve_torch

        return serve_torch(opened, how)
    return served(opened, lambda name: opened.make_backend(parse_live(name)), None, precision)


def served(
    opened: LiveModel, make: Callable[[str], Backend], pool: Callable[[int], Pool] | None, precision: str
) -> Served:
    """`make`: a backend by its policy's name; `pool`: for engines that batch sessions."""
    data = opened.recipe.data
    latencies = {latency: str(opened.for_latency(latency)) for latency in LATENCIES}
    return Served(
        f"{data.source}-{data.target}",
        data.source,
        data.target,
        opened.text,
        latencies,
        opened.check,
        pool or (lambda slots: SinglePool(make, slots)),
        precision,
    )
