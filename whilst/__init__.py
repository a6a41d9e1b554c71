"""whilst: simultaneous machine translation, from parallel text to a live translator.

The names of `__all__` are the public API. Importing them loads no PyTorch: that is left to the functions that need
it. Mistakes raise `UserError` with a message for the user, also where the package of an extra is missing.
"""

import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from whilst.core.errors import UserError, naming_extras
from whilst.core.policy_spec import PolicyKind, PolicySpec
from whilst.core.settings import DEFAULT_MODEL

if TYPE_CHECKING:
    from whilst.evaluation.metrics import Scores
    from whilst.evaluation.record import Record
    from whilst.evaluation.trace import Sentence
    from whilst.live.loading import Model
    from whilst.live.session import Event, SentenceEnd, Session, Word
    from whilst.policy.registry import Factory
    from whilst.policy.words import WordPolicy

__version__ = "0.1.0"
__all__ = ["PolicyKind", "PolicySpec", "UserError", "evaluate", "open_model", "register_policy", "score"]
__all__ += ["Event", "Model", "Sentence", "SentenceEnd", "Session", "Word", "WordPolicy"]  # see _LAZY

# Threads that wait must sleep, not spin: with more of them than cores an update of the toy model took 2.8 s
# spinning and 0.3 s sleeping (alone on two cores, 0.10 s either way). It has to be set before torch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Imported when they are first used, since they need numpy.
_LAZY = dict.fromkeys(("Event", "SentenceEnd", "Session", "Word"), "whilst.live.session")
_LAZY["WordPolicy"] = "whilst.policy.words"
_LAZY |= {"Model": "whilst.live.loading", "Sentence": "whilst.evaluation.trace"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_LAZY]


@naming_extras()
def open_model(
    name: str | Path = DEFAULT_MODEL,
    *,
    engine: Literal["auto", "torch", "onnx"] = "auto",
    precision: Literal["fp32", "int8"] = "int8",
    device: str = "auto",
    settings: Sequence[str] = (),
) -> "Model":
    """Open a model of the package, a run folder, a bundle or an export.

    `engine`: "onnx" is the CPU engine, with weights of this `precision`; "torch" runs any model and policy, on this
    `device`; "auto" is onnx if possible. `settings`: changes such as "evaluate.threshold=0.6".

        model = whilst.open_model("en-vi")
    """
    from whilst.live.loading import ModelOptions, open_model

    return open_model(ModelOptions(str(name), "medium", engine, precision, tuple(settings), device))


@naming_extras()
def evaluate(
    run: str | Path,
    policies: Sequence[str] = (),
    *,
    out: str | Path | None = None,
    text: bool = True,
    precision: Literal["fp32", "int8"] | None = None,
    device: str = "auto",
    settings: Sequence[str] = (),
) -> "list[Record]":
    """Translate the test set of a run or export under each policy, measure quality and latency (extra `train`).

    `policies`: those of the run's recipe by default. Traces and records are written to `out`, by default
    RUN/evaluations; with `text`, traces have source and reference. `precision`: of an export, int8 by default.

        for record in whilst.evaluate("runs/toy", policies=["wait-1", "wait-3"]):
            print(record.policy, record.scores.al, record.scores.bleu)
    """
    from whilst.engine.runtime import is_export
    from whilst.evaluation.evaluate import evaluate_run
    from whilst.live.evaluate_export import evaluate_exported

    run, folder = Path(run), None if out is None else Path(out)
    if is_export(run):
        return evaluate_exported(run, policies, precision or "int8", folder, text, list(settings), device)
    if precision is not None:
        raise UserError(f"--precision {precision}: {run} is no exported run; `whilst export` makes one")
    return evaluate_run(run, policies, folder, text, list(settings), device)


@naming_extras()
def score(trace: "str | Path | Sequence[Sentence]", references: Sequence[str] | None = None) -> "Scores":
    """Measure latency, and with references quality (extra `train`), of a trace file or of translated sentences.

    `references`: by default those in the trace, if it has any.

        scores = whilst.score("runs/toy/evaluations/test.wait-3.jsonl.xz")
    """
    from whilst.evaluation import metrics
    from whilst.evaluation.trace import read_trace

    return metrics.score(read_trace(Path(trace)) if isinstance(trace, str | Path) else trace, references)


@naming_extras()
def register_policy(kind: str, factory: "Factory", about: PolicyKind | None = None) -> None:
    """Add a kind of policy, which `open_model` and `evaluate` then know by its name. It runs on PyTorch.

    `factory` makes a `WordPolicy` or a `whilst.policy.Policy` from a `PolicySpec` and a `Context` (see
    whilst/policy); `about`: how it is named.

        whilst.register_policy("comma", lambda spec, context: AfterComma(spec.count), whilst.PolicyKind("count"))
    """
    from whilst.policy import register

    register(kind, factory, about)
