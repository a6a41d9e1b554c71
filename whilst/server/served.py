"""What a server translates with: a model, its latencies, and the pool that runs it. PyTorch only if it is used."""

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec

from whilst.core.errors import UserError
from whilst.live.loading import Model, ModelOptions, open_model
from whilst.live.session import Backend, Request

# Engines, and the precisions of their weights with the default first.
ENGINES = {"torch": ("fp32", "fp16"), "onnx": ("int8", "fp32")}


def default_engine() -> str:
    return "torch" if find_spec("torch") else "onnx"


@dataclass(frozen=True)
class EngineOptions:
    # torch: PyTorch, all sessions in one batch; onnx: the CPU engine, one by one
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
        """Called before BEGIN: the sentence that begins in this slot is translated under this policy."""

    @abc.abstractmethod
    def do(self, requests: Sequence[tuple[int, Request]]) -> list[int]:
        """The same operation in each of these slots; the results of `Backend.run`."""


class SinglePool(Pool):
    """A backend for each slot, one after the other."""

    together = False  # after a failure, the slots before it would have moved on

    def __init__(self, make: Callable[[str], Backend]) -> None:
        self._make = make
        self._backends: dict[int, tuple[str, Backend]] = {}  # by slot, with the name of the policy

    def use(self, slot: int, policy: str) -> None:
        if slot not in self._backends or self._backends[slot][0] != policy:
            self._backends[slot] = policy, self._make(policy)

    def do(self, requests: Sequence[tuple[int, Request]]) -> list[int]:
        return [self._backends[slot][1].run(request) for slot, request in requests]


@dataclass(frozen=True)
class Served:
    model: Model
    pool: Callable[[int], Pool]  # for so many sessions
    precision: str  # of the weights

    @property
    def name(self) -> str:
        return "-".join(self.model.languages)

    def describe(self) -> dict[str, str]:
        """For clients."""
        source, target = self.model.languages
        return {"name": self.name, "source": source, "target": target}


def serve_model(model: str, overrides: Sequence[str], how: EngineOptions) -> Served:
    """By its name. All policies share the model that low, medium and high are for."""
    options = ModelOptions(model, "medium", how.engine, "int8", tuple(overrides), how.device, how.threads)
    if how.engine == "onnx":
        exported = open_model(replace(options, precision=how.weights))
        return Served(exported, lambda _: SinglePool(exported.backend), how.weights)
    from whilst.live.torch_backend import Offline, TorchModel
    from whilst.server.torch_pool import OfflinePool, batch_pool, pack_weights

    opened = open_model(options)
    if isinstance(opened, Offline):
        if how.weights != "fp32":
            raise UserError(f"--precision {how.precision}: {model} needs whole sentences, and fp32; leave it out")
        return Served(opened, lambda _: OfflinePool(opened), "fp32")
    assert isinstance(opened, TorchModel)
    precision, opened.trained.model.packed_output = pack_weights(opened.trained, how)
    return Served(opened, partial(batch_pool, opened), precision)
