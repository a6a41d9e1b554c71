"""Arguments and options that several commands share."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from whilst.core.errors import UserError
from whilst.core.files import find_model, require_folder
from whilst.core.settings import Recipe

Run = Annotated[
    Path,
    typer.Argument(
        help="Folder of a trained model, written by `whilst train`, or the name of a model of the package.",
        metavar="RUN",
    ),
]
RunOrCheckpoint = Annotated[
    Path,
    typer.Argument(
        help="Folder of a trained model, the name of a model of the package, or hf:NAME, a pretrained model of the"
        " Hugging Face hub or in a folder.",
        metavar="RUN",
    ),
]
Source = Annotated[
    str, typer.Option("--source", help="Source language of an hf: model, such as en.", metavar="CODE")
]
Target = Annotated[
    str, typer.Option("--target", help="Target language of an hf: model, such as de.", metavar="CODE")
]
Set = Annotated[
    list[str],
    typer.Option("--set", help="Change a setting, such as train.steps=100. May be repeated.", metavar="A.B=C"),
]
Model = Annotated[
    str,
    typer.Option(
        "--model",
        help="A run folder, a folder written by `whilst export`, the name of a model of the package,"
        " or hf:NAME, a pretrained model of the Hugging Face hub or in a folder.",
        metavar="MODEL",
    ),
]
Latency = Annotated[
    str,
    typer.Option(
        "--latency",
        help="low, medium or high; or a policy: agent-L, lag-WORDS, wait-K, diagonal-K, local-agreement-N,"
        " align-att-F, full.",
        metavar="LATENCY",
    ),
]
LAG_HELP = "Stay this many source words behind on average (policy lag-WORDS). Needs `whilst calibrate`."
Lag = Annotated[float | None, typer.Option("--lag", help=LAG_HELP, metavar="WORDS", show_default=False)]
Lags = Annotated[list[float], typer.Option("--lag", help=f"{LAG_HELP} May be repeated.", metavar="WORDS")]
Device = Annotated[
    str, typer.Option("--device", help="auto (a GPU if there is one), cpu, cuda or cuda:N.", metavar="DEVICE")
]
Policies = Annotated[
    list[str],
    typer.Option(
        "--policy",
        help="full, wait-K, diagonal-K, mma, agent-L, oracle-L, lag-WORDS, local-agreement-N or align-att-F. L is"
        " the first read of a search interval."
        " agent-L.threshold-0.6 WRITEs at a probability of 0.6 or more. May be repeated. Default: the policies of"
        " the recipe.",
        metavar="POLICY",
    ),
]
Glossary = Annotated[
    Path | None,
    typer.Option(
        "--glossary",
        help="TSV file of terms: source, tab, translation. A term without translation stays as it is.",
        metavar="FILE",
    ),
]
Json = Annotated[Path | None, typer.Option("--json", help="Also write the figures to this file.", metavar="FILE")]
Keep = Annotated[int, typer.Option("--keep", help="Hypotheses in a row that must agree on a word.", min=1)]
Engine = Annotated[
    str,
    typer.Option(
        "--engine",
        help="onnx: exported graphs, one session at a time; torch: PyTorch, all sessions in one batch; auto: onnx"
        " if it is installed and supports the model.",
    ),
]
Precision = Annotated[
    str,
    typer.Option(
        "--precision",
        help="Of the weights: with --engine onnx int8 (the default) or fp32, with --engine torch fp32 or fp16.",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        help="Worker processes, each with the model. Default: one per core, at most 4; 1 on a GPU.",
        min=1,
        show_default=False,
    ),
]
Threads = Annotated[int, typer.Option("--threads", help="Threads of PyTorch in each worker; onnx uses one.", min=1)]
PolicyFile = Annotated[
    list[Path],
    typer.Option("--policy-file", help="Python file that registers policies (docs/policies.md).", metavar="FILE"),
]


def as_folder(path: Path | None) -> Path | None:
    """Check that files can be written into a folder, before they are computed."""
    if path is not None:
        require_folder(path, "--out")
    return path


def lag_policy(lag: float) -> str:
    """The name of the policy with this lag."""
    return f"lag-{round(lag, 3):g}"


def with_lag(policy: str, lag: float | None, default: str) -> str:
    """The name of the policy, which was chosen by name or by lag; `default` is the name if none was given."""
    if lag is None:
        return policy
    if policy != default:
        raise UserError(f"--lag and {policy}: both choose the policy; leave one out")
    return lag_policy(lag)


Stage = Literal["translate", "search", "agent"]


def with_languages(settings: list[str], model: str | Path, source: str, target: str) -> list[str]:
    """Add the languages of a pretrained model to its settings. Other models have languages of their own."""
    codes = {"source": source, "target": target}
    languages = [f"data.{side}={code}" for side, code in codes.items() if code]
    if languages and not Recipe(run=str(model)).checkpoint:
        raise UserError(f"--source and --target are for hf: models; {model} has its own languages: leave them out")
    return [*settings, *languages]


def register_policies(files: list[Path]) -> None:
    """Run Python files that register policies, so that these can be chosen by name."""
    if files:
        from whilst.policy.registry import register_files

        register_files(files)


def folder_of(run: Path) -> Path:
    """The folder of a run or of a model of the package, which is given by name. `hf:NAME` is returned unchanged."""
    is_name = len(run.parts) == 1 and not Recipe(run=str(run)).checkpoint
    return find_model(str(run)) if is_name else run


def with_glossary(settings: list[str], glossary: Path | None) -> list[str]:
    """Add a glossary to the settings."""
    return [*settings, f"evaluate.glossary={json.dumps(str(glossary))}"] if glossary else settings
