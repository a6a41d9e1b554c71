"""whilst: simultaneous machine translation, from parallel text to a live translator.

The names in `__all__` are the public API. Importing them does not load PyTorch; the functions that need PyTorch
load it. A mistake of the user, such as a missing optional package, raises `UserError`.
"""

import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from whilst.core.errors import UserError, name_missing_extra
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

# Waiting OpenMP threads sleep instead of spinning. With more threads than cores, an update of the toy model took
# 2.8 s with spinning and 0.3 s with sleeping (alone on two cores, 0.10 s either way). Must precede `import torch`.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Public name -> module. These are imported on first use, since they need numpy.
_LAZY = dict.fromkeys(("Event", "SentenceEnd", "Session", "Word"), "whilst.live.session")
_LAZY["WordPolicy"] = "whilst.policy.words"
_LAZY |= {"Model": "whilst.live.loading", "Sentence": "whilst.evaluation.trace"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_LAZY]


@name_missing_extra()
def open_model(
    name: str | Path = DEFAULT_MODEL,
    *,
    engine: Literal["auto", "torch", "onnx"] = "auto",
    precision: Literal["fp32", "int8"] = "int8",
    device: str = "auto",
    settings: Sequence[str] = (),
) -> "Model":
    """Open a model that comes with whilst, a run folder, a bundle or an export.

    `engine`: "onnx" is the CPU engine, which uses `precision`; "torch" runs any model and policy on `device`;
    "auto" is "onnx" if possible. `settings`: overrides such as "evaluate.threshold=0.6".

        model = whilst.open_model("en-vi")
    """
    from whilst.live.loading import ModelOptions, open_model

    return open_model(ModelOptions(str(name), "medium", engine, precision, tuple(settings), device))


@name_missing_extra()
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
    """Translate a run's or export's test set with each policy and measure quality and latency (extra `train`).

    `policies` defaults to those of the run's recipe. Traces and records are written to `out`, by default
    RUN/evaluations; with `text`, traces contain source and reference. `precision` is for exports, by default int8.

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
        raise UserError(f"--precision {precision}: {run} is not an export; `whilst export` makes one")
    return evaluate_run(run, policies, folder, text, list(settings), device)


@name_missing_extra()
def score(trace: "str | Path | Sequence[Sentence]", references: Sequence[str] | None = None) -> "Scores":
    """Measure the latency of a trace file or of translated sentences.

    With references, measure quality too (extra `train`). By default they are those in the trace, if it has any.

        scores = whilst.score("runs/toy/evaluations/test.wait-3.jsonl.xz")
    """
    from whilst.evaluation import metrics
    from whilst.evaluation.trace import read_trace

    return metrics.score(read_trace(Path(trace)) if isinstance(trace, str | Path) else trace, references)


@name_missing_extra()
def register_policy(kind: str, factory: "Factory", about: PolicyKind | None = None) -> None:
    """Add a kind of policy, whose names `open_model` and `evaluate` then accept. It runs on PyTorch only.

    `factory` makes a `WordPolicy` or a `whilst.policy.Policy` from a `PolicySpec` and a `Context` (see
    whilst/policy). `about` says how names of this kind are written and what its policies can do.

        whilst.register_policy("comma", lambda spec, context: AfterComma(spec.count), whilst.PolicyKind("count"))
    """
    from whilst.policy import register

    register(kind, factory, about)
