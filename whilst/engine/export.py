"""The `export` command: a trained run as a folder that engine.py translates with, without PyTorch.

    engine.json             format, sizes, settings of the run, checksums of the files below
    source.*, target.*      the two languages, so that the folder translates by itself
    tables.safetensors      embeddings, scaled as the model uses them, and positions: a step needs one row of each
    read.*.onnx             one source token: its encoder state, and the keys and values that it adds
    write.*.onnx            one target token: the decoder state that writes it, and its keys and values
    words.*.onnx            that state -> logits; apart, because an agent that looks ahead seldom wants them
    agent.*.onnx            where the run has an agent: one step of it

Each graph is there twice: fp32, and int8 with weights of 8 bits.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save

import whilst
from whilst.core.config import to_table
from whilst.core.errors import UserError
from whilst.core.files import read_json, sha256, write_json
from whilst.core.settings import MAX_POSITIONS
from whilst.engine.graph_builder import Floats
from whilst.engine.graphs import floats, graphs
from whilst.engine.runtime import ABOUT, FORMAT, PRECISIONS, Engine, Exported, OfAgent, Sizes, load_graph, unfit
from whilst.model.agent import Agent
from whilst.model.checkpoint import Trained, load_run
from whilst.model.run_folder import BUNDLE, pace_in
from whilst.model.transformer import Translator


@contextlib.contextmanager
def making(folder: Path) -> Iterator[Path]:
    """Yield a new folder beside `folder` that takes its name on success and is removed on failure.

    What somebody else has put into the old one, such as evaluations, goes over into the new one.
    """
    folder = folder.resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    new, old = (folder.with_name(f".{folder.name}.{os.getpid()}.{what}") for what in ("new", "old"))
    new.mkdir()
    try:
        yield new
        if folder.exists():
            folder.rename(old)  # a folder with files in it cannot be written over
        try:
            new.rename(folder)
        except BaseException:
            old.rename(folder)
            raise
        for path in foreign(old):
            if not (folder / path.name).exists():
                path.rename(folder / path.name)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def foreign(folder: Path) -> list[Path]:
    """What lies in an exported folder or a bundle, and is not part of it."""
    own = {ABOUT, BUNDLE}
    for name in (ABOUT, BUNDLE):
        with contextlib.suppress(UserError, AttributeError):  # not there, or damaged: what is not new is kept then
            own |= {Path(file).parts[0] for file in read_json(folder / name).get("files", {})}
    return [path for path in folder.iterdir() if path.name not in own] if folder.is_dir() else []


def tables(model: Translator) -> dict[str, Floats]:
    scale = np.float32(model.settings.width**0.5)
    return {
        "source": floats(model.source_embedding.weight) * scale,
        "target": floats(model.target_embedding.weight) * scale,
        "positions": floats(model.get_buffer("sinusoids")),
    }


def sizes(model: Translator, agent: Agent | None) -> Sizes:
    settings = model.settings
    of_agent = None
    if agent is not None:
        chosen = agent.settings
        of_agent = OfAgent(chosen.hidden, chosen.inputs, len(agent.start(1)), agent.latency.num_embeddings)
    layers = settings.encoder_layers, settings.decoder_layers
    return Sizes(settings.width, settings.heads, *layers, MAX_POSITIONS, of_agent)


def make_engine(model: Translator, agent: Agent | None, precision: str, threads: int = 1) -> Engine:
    """An engine without a folder."""
    made = graphs(model, agent, precision == "int8")
    loaded = {graph.name: load_graph(graph.serialise(), threads) for graph in made}
    return Engine(sizes(model, agent), tables(model), loaded)


def find_pace(trained: Trained) -> tuple[int, int] | None:
    try:
        return pace_in(trained.path, trained.recipe)
    except UserError:  # the dataset is elsewhere, and only diagonal-K would want it
        return None


def write_engine(trained: Trained, folder: Path, precisions: Sequence[str] = PRECISIONS) -> None:
    """Fill a folder that is there already."""
    model, agent = trained.model, trained.agent
    for precision in precisions:
        for graph in graphs(model, agent, precision == "int8"):
            (folder / f"{graph.name}.{precision}.onnx").write_bytes(graph.serialise())
    (folder / "tables.safetensors").write_bytes(save(tables(model)))
    trained.source.save(folder, "source")
    trained.target.save(folder, "target")
    about = {
        "format": FORMAT,
        "whilst": whilst.__version__,
        "weights": trained.checksum,  # of the run's model.safetensors
        "sizes": asdict(sizes(model, agent)),
        "recipe": to_table(trained.recipe),
        "agents": list(map(str, trained.agents)),
        "pace": find_pace(trained),
        "files": {path.name: sha256(path) for path in sorted(folder.iterdir())},
    }
    write_json(folder / ABOUT, about)


def load_exportable(run: Path) -> Trained:
    trained = load_run(run, torch.device("cpu"))
    if reason := unfit(trained.recipe.model):
        raise UserError(f"{run}: {reason}")
    return trained


def export_in_memory(trained: Trained, precision: str, threads: int = 1) -> Exported:
    """What loading an export of this precision would give."""
    engine = make_engine(trained.model, trained.agent, precision, threads)
    return Exported(
        trained.path,
        trained.recipe,
        trained.source,
        trained.target,
        engine,
        precision,
        list(trained.agents),
        find_pace(trained),
        trained.checksum,
    )


def export(run: Path, out: Path) -> None:
    empty = out.is_dir() and not any(out.iterdir())
    if out.exists() and not empty and not (out / ABOUT).is_file():
        raise UserError(f"{out}: is there already and is no earlier export; name another folder")
    trained = load_exportable(run)
    with making(out) as folder:
        write_engine(trained, folder)
