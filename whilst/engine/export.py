"""The commands `export` and `bundle`: write a trained run as a folder for translation on other machines.

An export is the folder that runtime.py loads to translate without PyTorch:

    engine.json             format, sizes, settings of the run, checksums of the files below
    source.*, target.*      the two languages, so that the folder needs no other files
    lags.json               if the run was calibrated: how far its agent is behind the source
    tables.*.safetensors    scaled embeddings: a step needs one row of each
    read.*.onnx             a source token -> its encoder state, and its keys and values
    write.*.onnx            the last target token -> the decoder state that writes the next, its keys and values
    words.*.onnx            that state -> logits; separate, because most lookahead states need no logits
    agent.*.onnx            if the run has an agent: one step of the agent

Each graph and table exists in fp32, in int8 (8-bit weights), or in both.

A bundle is a small run folder: recipe, languages, weights in half precision (single when loaded), the agent. It
also has an export in int8 (engine/), a model card (README.md), and bundle.json: checksums, and the length ratio,
which otherwise needs the dataset. For a bundle without weights, as in the package (whilst/models), PyTorch uses the
weights of its engine.
"""

import contextlib
import dataclasses
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import save
from torch import Tensor

import whilst
from whilst.core.config import read_recipe, to_table
from whilst.core.console import notes
from whilst.core.errors import UserError
from whilst.core.files import read_json, sha256, write_json, writing_folder
from whilst.core.policy_spec import LATENCIES, for_latency
from whilst.core.settings import Recipe
from whilst.engine.runtime import (
    FORMAT,
    MANIFEST,
    PRECISIONS,
    Engine,
    Exported,
    Floats,
    export_obstacle,
    load_graph,
    read_tables,
)
from whilst.model.agent import Agent
from whilst.model.checkpoint import (
    LoadedRun,
    load_run,
    load_tensors,
    read_weights,
    save_tensors,
    write_recipe,
    write_run,
)
from whilst.model.lags import LAGS, lags_path, read_lags
from whilst.model.run_folder import (
    AGENT,
    BUNDLE,
    BUNDLE_FORMAT,
    SHIPPED,
    WEIGHTS,
    choose_policy,
    has_agent,
    length_ratio_of,
)
from whilst.model.transformer import Translator, angular_rates

CPU = torch.device("cpu")
CARD = "README.md"


@contextlib.contextmanager
def replacing(folder: Path, manifest: str) -> Iterator[Path]:
    """Like `writing_folder`, but only for a folder that is empty or has this manifest.

    Files that the manifest does not list, such as evaluations, are kept.
    """
    occupied = folder.is_file() or (folder.is_dir() and any(folder.iterdir()))
    if occupied and not (folder / manifest).is_file():
        kind = {MANIFEST: "export", BUNDLE: "bundle"}[manifest]
        raise UserError(f"{folder}: exists and is not an earlier {kind}; name another folder")
    replaced = {manifest, SHIPPED}
    with contextlib.suppress(UserError, AttributeError):  # no manifest, or a damaged one: all files are kept
        replaced |= {Path(file).parts[0] for file in read_json(folder / manifest).get("files", {})}
    with writing_folder(folder) as new:
        yield new
        for path in folder.iterdir() if folder.is_dir() else ():
            if path.name not in replaced and not (new / path.name).exists():
                shutil.copytree(path, new / path.name) if path.is_dir() else shutil.copy2(path, new)


def make_tables(model: Translator, int8: bool) -> dict[str, NDArray[Any]]:
    """The tables as they are stored: scaled embeddings, and the angular rates of the sinusoids of positions."""
    from whilst.engine.graphs import floats, quantised  # needs onnx, unlike a bundle of weights

    scale = np.float32(model.settings.width**0.5)
    tables: dict[str, NDArray[Any]] = {"rates": floats(angular_rates(model.settings.width))}
    for side, embedding in (("source", model.source_embedding), ("target", model.target_embedding)):
        table = floats(embedding.weight) * scale
        if int8:
            tables[side], tables[f"{side}.scale"] = quantised(table)
        else:
            tables[side] = as_half(table)
    return tables


def make_engine(model: Translator, agent: Agent | None, precision: str) -> Engine:
    """An engine in memory, without a folder."""
    from whilst.engine.graphs import make_graphs

    graphs = make_graphs(model, agent, precision == "int8")
    loaded = {graph.name: load_graph(graph.serialise()) for graph in graphs}
    return Engine(read_tables(make_tables(model, precision == "int8")), loaded)


def length_ratio(trained: LoadedRun) -> tuple[int, int] | None:
    try:
        return length_ratio_of(trained.path, trained.recipe)
    except UserError:  # the dataset is not here, and only diagonal-K needs it
        return None


def as_half(table: Floats) -> NDArray[np.floating]:
    """Convert to half precision if that is exact, as it is for the embeddings of a bundle."""
    with np.errstate(over="ignore"):
        half = table.astype(np.float16)
    return half if (half == table).all() else table


def write_engine(trained: LoadedRun, folder: Path, precisions: Sequence[str] = PRECISIONS) -> None:
    """Write an export into an existing folder."""
    from whilst.engine.graphs import make_graphs

    model, agent = trained.model, trained.agent
    for precision in precisions:
        for graph in make_graphs(model, agent, precision == "int8"):
            (folder / f"{graph.name}.{precision}.onnx").write_bytes(graph.serialise())
        tables = make_tables(model, precision == "int8")
        (folder / f"tables.{precision}.safetensors").write_bytes(save(tables))
    trained.source.save(folder, "source")
    trained.target.save(folder, "target")
    copy_lags(trained.path, folder)
    manifest = {
        "format": FORMAT,
        "whilst": whilst.__version__,
        "weights": trained.checksum,  # of the run's model.safetensors
        "recipe": to_table(trained.recipe),
        "agents": list(map(str, trained.agents)),
        "pace": length_ratio(trained),
        "files": {path.name: sha256(path) for path in sorted(folder.iterdir())},
    }
    write_json(folder / MANIFEST, manifest)


def copy_lags(run: Path, folder: Path) -> None:
    """Copy the run's table of lags to an export or bundle of this run."""
    if lags_path(run).is_file():
        try:
            read_lags(run).write(folder)
        except UserError as error:
            notes.print(f"left out: {error}")


def load_exportable(run: Path) -> LoadedRun:
    trained = load_run(run, CPU)
    if obstacle := export_obstacle(trained.recipe.model):
        raise UserError(f"{run}: {obstacle}")
    return trained


def export_in_memory(trained: LoadedRun, precision: str) -> Exported:
    """What loading an export of this precision would return."""
    engine = make_engine(trained.model, trained.agent, precision)
    languages, agents = (trained.source, trained.target), list(trained.agents)
    ratio = length_ratio(trained)
    return Exported(trained.path, trained.recipe, *languages, engine, precision, agents, ratio, trained.checksum)


def export(run: Path, out: Path, precisions: Sequence[str] = PRECISIONS) -> None:
    trained = load_exportable(run)
    with replacing(out, MANIFEST) as folder:
        write_engine(trained, folder, precisions)


def bundle(run: Path, out: Path, parts: Literal["both", "weights", "engine"] = "both") -> None:
    """`parts`: without weights, PyTorch uses those of the engine; without an engine, one is made when needed."""
    source, _, _ = choose_policy(run, "medium")
    trained = load_run(source, CPU)
    obstacle = export_obstacle(trained.recipe.model)
    if obstacle and parts == "engine":
        raise UserError(f"{run}: {obstacle}; bundle its weights")
    with replacing(out, BUNDLE) as folder:
        write_half_precision(trained, folder, out.name)
        bundled = load_run(folder, CPU)
        if parts != "weights" and not obstacle:
            (folder / SHIPPED).mkdir()
            write_engine(bundled, folder / SHIPPED, ["int8"])
        if parts == "engine":
            (folder / WEIGHTS).unlink()
        paths = [
            path
            for path in folder.rglob("*")
            if path.is_file() and path.parent.name != SHIPPED and path.name != LAGS
        ]
        files = sorted(path.relative_to(folder).as_posix() for path in paths)
        manifest = {
            "format": BUNDLE_FORMAT,
            "whilst": whilst.__version__,
            "weights": trained.checksum,  # of the run
            "pace": length_ratio(trained),
            "files": {name: sha256(folder / name) for name in files},
        }
        write_json(folder / BUNDLE, manifest)
        if (out / CARD).is_file():  # `replacing` keeps this file: somebody may have edited it
            notes.print(f"{out / CARD} stays as it is; delete it for a new one")
        else:
            (folder / CARD).write_text(model_card(bundled, out.name), encoding="utf-8")


def portable(recipe: Recipe, name: str) -> Recipe:
    """The recipe without the folders and the precision of the machine where the run was trained."""
    data = dataclasses.replace(recipe.data, folder="", dataset=f"data/{Path(recipe.data.dataset).name}")
    teacher = recipe.teacher and f"runs/{Path(recipe.teacher).name}"
    evaluate = dataclasses.replace(recipe.evaluate, precision="single")  # half: GPU only
    return dataclasses.replace(recipe, run=name, start="", teacher=teacher, data=data, evaluate=evaluate)


def write_half_precision(trained: LoadedRun, folder: Path, name: str) -> None:
    """Write the run folder that a bundle is: recipe, languages, weights, and the agent with its lags."""
    write_run(folder, portable(trained.recipe, name), trained.source, trained.target)
    tensors, metadata = read_weights(trained.path, trained.model, CPU)
    halve(tensors, metadata, trained.path, folder / WEIGHTS)
    if has_agent(trained.path):
        recipe = read_recipe(trained.path / AGENT)
        write_recipe(folder / AGENT, portable(recipe, f"{name}/{AGENT}"))
        agent = trained.path / AGENT
        halve(*load_tensors(agent / WEIGHTS, CPU), agent, folder / AGENT / WEIGHTS)
        copy_lags(trained.path, folder)


def halve(tensors: dict[str, Tensor], metadata: dict[str, Any], source: Path, target: Path) -> None:
    """Save the tensors in half precision as `target`. `source`: the run folder, for errors."""
    halves = {name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
    for name, tensor in halves.items():
        if not tensor.isfinite().all():
            raise UserError(f"{source}: {name} has weights too large for half precision")
    metadata.pop("start", None)  # checksum of a file in single precision, which the bundle does not have
    save_tensors(target, halves, metadata)
    target.chmod(0o644)  # safetensors makes files that only their owner can read


def model_card(bundled: LoadedRun, name: str) -> str:
    data, model = bundled.recipe.data, bundled.recipe.model
    modules = filter(None, (bundled.model, bundled.agent))
    count = sum(parameter.numel() for module in modules for parameter in module.parameters())
    size = f"{model.encoder_layers} + {model.decoder_layers} layers, width {model.width}, {model.heads} heads"
    rows = {
        "languages": f"{data.source} to {data.target}",
        "text": "lower-cased" if data.lowercase else "cased",
        "parameters": f"{count / 1e6:.1f} M ({size})",
        "units": f"{data.units}: {len(bundled.source):,} of the source, {len(bundled.target):,} of the target",
        "trained on": data.corpus or Path(data.dataset).name,
        "latencies": ", ".join(f"{latency}: {for_latency(latency, bundled.agents)[0]}" for latency in LATENCIES),
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
