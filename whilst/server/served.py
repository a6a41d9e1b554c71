"""What a server translates with: a model, its latencies, and the pool that runs it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from whilst.core.console import log
from whilst.core.errors import UserError
from whilst.core.policy_spec import LATENCIES, parse_live
from whilst.decoding.policies import policy_for
from whilst.live.loading import LiveModel, ModelOptions, open_model
from whilst.live.session import Backend, TextPipeline
from whilst.live.torch_backend import TorchModel
from whilst.model.run_folder import BUNDLE
from whilst.policy import Policy
from whilst.server.packed import PRECISIONS, can_pack, pack
from whilst.server.pool import BatchPool, Pool, SinglePool

# Engines, and the precisions of their weights with the default first.
ENGINES = {"batch": tuple(PRECISIONS), "single": tuple(PRECISIONS), "onnx": ("int8", "fp32")}


@dataclass(frozen=True)
class EngineOptions:
    """How the model is run."""

    engine: str = "batch"  # all sessions in one batch; "single": one by one; "onnx": one by one on the CPU engine
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
    if isinstance(opened, TorchModel):
        return serve_torch(opened, how)
    return served(opened, lambda name: opened.make_backend(parse_live(name)), None, precision)


def serve_torch(opened: TorchModel, how: EngineOptions) -> Served:
    trained, text, output = opened.trained, opened.text, None
    model = trained.model
    # A bundle's weights are in half precision as they are: nothing is lost, and it is faster.
    halves = (trained.path / BUNDLE).is_file() and can_pack(model, "fp16")
    weights = how.precision or ("fp16" if halves else how.weights)
    if can_pack(model, weights):
        layer = PRECISIONS[weights]
        for part in filter(None, (model, trained.agent)):
            pack(part, layer)
        output = layer(model.target_embedding.weight, None)
    elif weights != "fp32":
        raise UserError(f"--precision {weights}: not available on this machine; leave it out")

    @lru_cache(maxsize=64)
    def policy(name: str) -> Policy:
        return policy_for(trained, parse_live(name), trained.recipe.evaluate, logits=output)

    def pool(slots: int) -> Pool:
        sizes = slots, text.max_units, text.max_target_units(text.max_units)
        return BatchPool(model, policy, *sizes, output)

    def make(name: str) -> Backend:
        return opened.make_backend(parse_live(name))

    return served(opened, make, pool if how.engine == "batch" else None, weights)


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
