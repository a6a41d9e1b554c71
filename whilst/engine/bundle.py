"""The `bundle` command: a trained run as a small folder that can be shipped, also with the package (whilst/models).

A bundle is a run folder: recipe, languages, weights in half precision (single when loaded), the agent. It also has
the exported engine in int8 (engine/), a model card (README.md), and bundle.json: checksums, and the length ratio,
which would need the dataset.
"""

import dataclasses
from pathlib import Path

import torch

import whilst
from whilst.core.console import notes
from whilst.core.errors import UserError
from whilst.core.files import sha256, write_json
from whilst.core.policy_spec import LATENCIES, for_latency
from whilst.core.settings import Recipe
from whilst.engine.engine_cache import SHIPPED
from whilst.engine.export import length_ratio, replacing, write_engine
from whilst.engine.runtime import export_obstacle
from whilst.model.checkpoint import LoadedRun, load_run, load_tensors, save_tensors, write_recipe, write_run
from whilst.model.run_folder import (
    AGENT,
    BUNDLE,
    BUNDLE_FORMAT,
    WEIGHTS,
    check_bundle,
    choose_policy,
    has_agent,
    read_recipe,
)

CPU = torch.device("cpu")
CARD = "README.md"


def bundle(run: Path, out: Path) -> None:
    home, _, _ = choose_policy(run, "medium")
    trained = load_run(home, CPU)
    with replacing(out, BUNDLE) as folder:
        write_half_precision(trained, folder, out.name)
        made = load_run(folder, CPU)
        files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        about = {
            "format": BUNDLE_FORMAT,
            "whilst": whilst.__version__,
            "weights": trained.checksum,  # of the run
            "pace": length_ratio(trained),
            "files": {name: sha256(folder / name) for name in files},
        }
        write_json(folder / BUNDLE, about)
        check_bundle(folder)
        if (out / CARD).is_file():  # `replacing` keeps it: somebody may have edited it
            notes.print(f"{out / CARD} stays as it is; delete it for a new one")
        else:
            (folder / CARD).write_text(model_card(made, out.name), encoding="utf-8")
        if not export_obstacle(made.recipe.model):
            (folder / SHIPPED).mkdir()
            write_engine(made, folder / SHIPPED, ["int8"])


def portable(recipe: Recipe, name: str) -> Recipe:
    """Without the folders of the machine that it was trained on."""
    data = dataclasses.replace(recipe.data, folder="", dataset=f"data/{Path(recipe.data.dataset).name}")
    teacher = recipe.teacher and f"runs/{Path(recipe.teacher).name}"
    return dataclasses.replace(recipe, run=name, start="", teacher=teacher, data=data)


def write_half_precision(trained: LoadedRun, folder: Path, name: str) -> None:
    """Write everything that makes it a run."""
    write_run(folder, portable(trained.recipe, name), trained.source, trained.target)
    halve(trained.path / WEIGHTS, folder / WEIGHTS)
    if has_agent(trained.path):
        recipe = read_recipe(trained.path / AGENT)
        write_recipe(folder / AGENT, portable(recipe, f"{name}/{AGENT}"))
        halve(trained.path / AGENT / WEIGHTS, folder / AGENT / WEIGHTS)


def halve(source: Path, target: Path) -> None:
    tensors, about = load_tensors(source, CPU)
    halves = {name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
    for name, tensor in halves.items():
        if not tensor.isfinite().all():
            raise UserError(f"{source}: {name} has weights too large for half precision")
    about.pop("start", None)  # checksum of a file in single precision, which the bundle does not have
    save_tensors(target, halves, about)
    target.chmod(0o644)  # safetensors makes files that only their owner can read


def model_card(made: LoadedRun, name: str) -> str:
    data, model = made.recipe.data, made.recipe.model
    modules = filter(None, (made.model, made.agent))
    count = sum(parameter.numel() for module in modules for parameter in module.parameters())
    size = f"{model.encoder_layers} + {model.decoder_layers} layers, width {model.width}, {model.heads} heads"
    rows = {
        "languages": f"{data.source} to {data.target}",
        "text": "lower-cased" if data.lowercase else "cased",
        "parameters": f"{count / 1e6:.1f} M ({size}); half precision in the file, single in use",
        "units": f"{data.units}: {len(made.source):,} of the source, {len(made.target):,} of the target",
        "trained on": data.corpus or Path(data.dataset).name,
        "latencies": ", ".join(f"{latency}: {for_latency(latency, made.agents)[0]}" for latency in LATENCIES),
    }
    table = "\n".join(f"| {left} | {right} |" for left, right in rows.items())
    return f"""# {name}

A simultaneous translator, made with whilst {whilst.__version__}.

    whilst live --model PATH/TO/{name}

| | |
|---|---|
{table}

It knows the kind of text that it was trained on. Expect mistakes, most of them far from that text and at low
latency: it writes before it has read everything, and does not take back what it wrote.
"""
