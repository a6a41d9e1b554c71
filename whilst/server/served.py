"""A model as a server uses it: its latencies, and the pool that runs it. Imports PyTorch only if it is used."""

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from whilst.core.errors import UserError
from whilst.live.loading import EngineModel, Model, ModelOptions, open_model
from whilst.live.session import Backend, Request

# Engines, and the precisions of their weights.
ENGINES = {"auto": (), "torch": ("fp32", "fp16"), "onnx": ("int8", "fp32")}


@dataclass(frozen=True)
class EngineOptions:
    # torch: PyTorch, all sessions in one batch; onnx: the CPU engine, one session at a time; auto: onnx where
    # `whilst live` uses it
    engine: str = "auto"
    precision: str = ""  # empty: the engine's default
    device: str = "cpu"
    threads: int = 1

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise UserError(f"--engine {self.engine}: must be {', '.join(ENGINES)}")
        if self.precision in ("", *ENGINES[self.engine]):
            return
        if self.engine == "auto":
            raise UserError(f"--precision {self.precision}: needs an engine; add --engine torch or --engine onnx")
        known = " or ".join(ENGINES[self.engine])
        raise UserError(f"--precision {self.precision}: with --engine {self.engine} it must be {known}")


class Pool(abc.ABC):
    """Runs the model for the sessions of a server, each in a slot. Called by one thread.

    A call that fails may be repeated for fewer slots.
    """

    is_batched = True  # whether a call may be for several slots

    @abc.abstractmethod
    def use(self, slot: int, policy: str) -> None:
        """Called before BEGIN: the sentence that begins in this slot is translated under this policy."""

    @abc.abstractmethod
    def do(self, requests: Sequence[tuple[int, Request]]) -> list[int]:
        """Run the same operation in each of these slots; returns the results of `Backend.run`."""


class SinglePool(Pool):
    """A backend for each slot; the backends run one after the other."""

    is_batched = False  # a failing call for several slots would have changed the slots before the failing one

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
    pool: Callable[[int], Pool]  # makes the pool for a number of sessions
    precision: str  # of the weights

    @property
    def name(self) -> str:
        return "-".join(self.model.languages)

    @property
    def engine(self) -> str:
        """Its name for users, such as ONNX int8."""
        name = self.model.engine
        return name if name.endswith(self.precision) else f"{name} {self.precision}"

    def describe(self) -> dict[str, str]:
        """How messages to clients name the model."""
        source, target = self.model.languages
        return {"name": self.name, "source": source, "target": target}


def serve_model(model: str, overrides: Sequence[str], engine: EngineOptions) -> Served:
    """Load a model by its name. All policies use the model that belongs to low, medium and high."""
    precision = (engine.engine == "onnx" and engine.precision) or "int8"  # of the CPU engine
    options = ModelOptions(
        model, "medium", engine.engine, precision, tuple(overrides), engine.device, engine.threads
    )
    opened = open_model(options)
    if isinstance(opened, EngineModel):
        return Served(opened, lambda _: SinglePool(opened.backend), precision)
    from whilst.live.torch_backend import Offline, TorchModel
    from whilst.server.torch_pool import OfflinePool, batch_pool, prepack_weights

    if isinstance(opened, Offline):
        if engine.precision not in ("", "fp32"):
            reason = f"{model} is an offline model and needs fp32"
            raise UserError(f"--precision {engine.precision}: {reason}; leave it out")
        return Served(opened, lambda _: OfflinePool(opened), "fp32")
    assert isinstance(opened, TorchModel)
    precision, opened.trained.model.prepacked_output = prepack_weights(opened.trained, engine.precision)
    return Served(opened, partial(batch_pool, opened), precision)
