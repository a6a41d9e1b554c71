"""`whilst bench peers`: the same architecture, weights and text in whilst and in other toolkits, on a CPU.

A peer runs in a process of its own, in an environment made from requirements/peers.txt. What is not installed is a
row that says so. Every turn measures all systems, one after the other; medians are shown.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import torch

import whilst
from whilst.core.config import override
from whilst.core.console import notes, progress_bar
from whilst.core.distributed import device_name
from whilst.core.errors import UserError
from whilst.core.provenance import provenance
from whilst.core.settings import DEFAULT_MODEL, MAX_POSITIONS, Limits, Objective, Recipe
from whilst.data import toy
from whilst.data.vocabulary import EOS
from whilst.decoding.batched import Decoding
from whilst.engine.export import make_engine
from whilst.engine.runtime import Engine, EngineSession
from whilst.model.transformer import Translator
from whilst.policy.fixed import Full
from whilst.research.bench import CPU, PAPER_UNITS, random_dataset, random_model
from whilst.research.bench_report import Figures, report
from whilst.training.estimate import random_task, time_call
from whilst.training.loop import Loop

REQUIREMENTS = Path("requirements/peers.txt")
SIMULEVAL = Path(sys.prefix) / "simuleval"  # where the Makefile installs it
SIZES: dict[str, Sequence[str]] = {
    "paper": (),
    "small": ("model.encoder_layers=2", "model.decoder_layers=2", "model.width=256", "model.feed_forward=512"),
}
PRECISIONS = {"fp32": "float32", "int8": "int8"}  # our names, and those of CTranslate2
WEIGHT_SCALE = 16  # factor for random weights of the decoder, without which it repeats one unit

Sources = Sequence[Sequence[int]]
Turn = Callable[[], Figures]  # one measurement: "seconds", "version" of a peer, "same"; or why a system is "absent"


@dataclass(frozen=True)
class Amount:
    """How much is measured."""

    updates: int = 8
    batch_tokens: int = 2048
    batch: int = 32  # sentences decoded together; two such batches
    alone: int = 10  # of them one by one
    lengths: tuple[int, ...] = (30, 100)  # of sources under wait-k; other sentences are as long as the first
    k: int = 3
    lines: int = 20  # for SimulEval
    turns: int = 3
    threads: int = 1


def python_of(folder: Path) -> Path:
    """The Python of the peers' environment, which is made first if there is none."""
    python = folder / "bin" / "python"
    if python.is_file():
        return python
    if not REQUIREMENTS.is_file():
        raise UserError(f"{REQUIREMENTS}: no such file; run this in the repository")
    notes.print(f"{folder}: installing the peers (a minute or two)")
    try:
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-qq", "-r", REQUIREMENTS], check=True)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, subprocess.CalledProcessError):
            raise UserError(f"{folder}: pip could not install {REQUIREMENTS}") from None
        raise
    return python


def ask(python: Path, worker: str, *arguments: str, path: str = "") -> Figures:
    """Run a worker; return the figures that it prints, or why it is absent. `path`: its PYTHONPATH."""
    command = [str(python), str(Path(__file__).with_name(f"{worker}_worker.py")), *arguments]
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"absent": (done.stderr.splitlines() or [f"exit status {done.returncode}"])[-1]}
    found: Figures = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(work: str, model: str, tokens: int, systems: dict[str, Turn], turns: int) -> list[Figures]:
    """A row for each system. Ratios compare with the fastest system of whilst."""
    found: dict[str, list[Figures]] = {system: [] for system in systems}
    for _ in progress_bar(range(turns), f"{work}, {model}", "turns"):
        for system, turn in systems.items():
            if not any("absent" in one for one in found[system]):
                found[system].append(turn())
    rates = {
        system: tokens / median(one["seconds"] for one in several)
        for system, several in found.items()
        if not any("absent" in one for one in several)
    }
    best = max((rate for system, rate in rates.items() if "whilst" in system), default=0.0)
    rows: list[Figures] = []
    for system, several in found.items():
        last, rate = several[-1], rates.get(system)
        version = last.get("version", whilst.__version__) if rate else f"absent: {last['absent']}"
        row: Figures = {"work": work, "model": model, "system": system, "version": version, "tokens/s": rate}
        row |= {"ms a token": rate and 1000 / rate, "whilst / this": rate and best / rate}
        rows.append(row | {"same outputs": last.get("same")})
    return rows


def write_work(folder: Path, recipe: Recipe, amount: Amount, more: Figures) -> None:
    """Write the settings that the workers read."""
    work = {**asdict(recipe.model), **asdict(amount), "units": PAPER_UNITS, "positions": MAX_POSITIONS, **more}
    (folder / "work.json").write_text(json.dumps(work), encoding="utf-8")


def training(recipe: Recipe, amount: Amount, python: Path, folder: Path, size: str) -> list[Figures]:
    """Updates on the same padded batches. Ours are those of the training loop, averaged weights included."""
    train = replace(recipe.train, batch_tokens=amount.batch_tokens)
    recipe = replace(recipe, objective=Objective("full"), train=train)
    dataset = random_dataset()
    loop = Loop(recipe, random_task(recipe, dataset, CPU))
    upcoming = loop.updates()
    updates = [next(upcoming) for _ in range(amount.updates)]
    batches = [batch for micro_batches, _, _ in updates for _, batch in micro_batches]
    tensors = [tensor for batch in batches for tensor in (batch.source, batch.target, batch.labels)]
    np.savez(folder / "batches.npz", *(tensor.numpy() for tensor in tensors))
    more = {"smoothing": recipe.objective.label_smoothing, "clip": loop.state.optimiser.clip}
    write_work(folder, recipe, amount, more | {"units": (len(dataset.source), len(dataset.target))})

    def epoch() -> None:
        for micro_batches, tokens, _ in updates:
            loop.update(micro_batches, tokens)

    def ours() -> Figures:
        epoch()
        return {"seconds": time_call(epoch, CPU)[0]}

    systems: dict[str, Turn] = {"whilst": ours}
    for peer in ("torch", "joeynmt"):
        systems[peer] = partial(ask, python, "train", peer, str(folder))
    return measure("training", size, sum(tokens for _, tokens, _ in updates), systems, amount.turns)


@torch.no_grad()
def varied_model(recipe: Recipe) -> Translator:
    """A model with random weights whose outputs are as long as their sources and vary."""
    model = random_model(recipe, CPU)
    model.target_embedding.weight[EOS] = 0  # the end mark is never written
    for name, parameter in model.decoder.named_parameters():
        if name.endswith(("query.weight", "out.weight", "feed_forward.3.weight")):
            parameter.mul_(WEIGHT_SCALE)
    return model


def write_words(engine: Engine, source: Sequence[int], k: int) -> list[int]:
    """The units that the CPU engine writes for a source under wait-k, as many as the source has."""
    session, written = EngineSession(engine), list[int]()
    for position, unit in enumerate(source, start=1):
        session.read(unit)
        while len(written) < (position - k + 1 if position < len(source) else len(source)):
            written.append(session.next_token())
            session.commit(written[-1])
    return written


def decoding(recipe: Recipe, amount: Amount, python: Path, folder: Path, size: str) -> list[Figures]:
    """Whole sentences in batches and one by one, and wait-k, with the same random weights."""
    model = varied_model(recipe)
    whole = Translator(replace(recipe.model, encoder="bidirectional"), *PAPER_UNITS).eval()
    whole.load_state_dict(model.state_dict())
    tensors = {"sinusoids": model.get_buffer("sinusoids"), **model.state_dict()}
    np.savez(folder / "weights.npz", **{name: tensor.numpy() for name, tensor in tensors.items()})
    engines = {name: make_engine(model, None, name) for name in PRECISIONS}

    length, draw = amount.lengths[0], np.random.default_rng(1)
    drawn = draw.integers(4, PAPER_UNITS[0], (2 * amount.batch, length - 1)).tolist()
    sources, long = [[*source, EOS] for source in drawn], draw.integers(4, PAPER_UNITS[0], 1000).tolist()
    write_work(folder, recipe, amount, {"sources": sources, "long": long})
    outputs: list[list[str]] = []

    def in_batches() -> Figures:
        work = Decoding(whole, Full(), Limits(1.0, 0), amount.batch)
        seconds, found = time_call(lambda: work.translate(sources), CPU)
        outputs[:] = [list(map(str, output.units)) for output in found]
        return {"seconds": seconds}

    def one_by_one() -> Figures:
        work = Decoding(whole, Full(), Limits(1.0, 0), 1)
        return {"seconds": time_call(lambda: work.translate(sources[: amount.alone]), CPU)[0]}

    def engine_writes(precision: str, some: Sources, k: int) -> Figures:
        engine = engines[precision]
        return {"seconds": time_call(lambda: [write_words(engine, source, k) for source in some], CPU)[0]}

    def peer_writes(precision: str, what: str) -> Figures:
        found = ask(python, "ctranslate2", PRECISIONS[precision], what, str(folder))
        pairs = list(zip(outputs, found.pop("outputs", []), strict=False))
        same = sum(own == other for own, other in pairs) / len(pairs) if what == "batches" and pairs else None
        return found | {"same": same}

    def peers(what: str) -> dict[str, Turn]:
        return {f"ctranslate2 {precision}": partial(peer_writes, precision, what) for precision in PRECISIONS}

    def engines_on(some: Sources, k: int) -> dict[str, Turn]:
        return {f"whilst {precision}": partial(engine_writes, precision, some, k) for precision in PRECISIONS}

    in_batches()  # to warm up
    together: dict[str, Turn] = {"whilst PyTorch fp32": in_batches, **peers("batches")}
    alone = {"whilst PyTorch fp32": one_by_one, **engines_on(sources[: amount.alone], length), **peers("alone")}
    rows = measure(f"batches of {amount.batch}", size, len(sources) * length, together, amount.turns)
    rows += measure("one by one", size, amount.alone * length, alone, amount.turns)
    for units in amount.lengths:
        systems = engines_on([long[:units]], amount.k) | peers(str(units))
        rows += measure(f"wait-{amount.k}, {units} units", size, units, systems, amount.turns)
    return rows


def agent_loop(amount: Amount, folder: Path, model: str) -> list[Figures]:
    """SimulEval's loop around our agent, and a session of ours. Tokens are source words."""
    lines = [" ".join(pair.source) for pair in toy.pairs(amount.lines, 7)]
    write_work(folder, Recipe(), amount, {"model": model, "policy": f"wait-{amount.k}", "lines": lines})
    path, found = os.pathsep.join(map(str, (SIMULEVAL, Path(whilst.__file__).parents[1]))), Figures()

    def ours() -> Figures:
        found.clear()
        found.update(ask(Path(sys.executable), "simuleval", str(folder), path=path))
        return found if "absent" in found else {"seconds": found["whilst"]}

    def theirs() -> Figures:
        return found if "absent" in found else found | {"seconds": found["simuleval"]}

    words = sum(len(line.split()) for line in lines)
    return measure("agent loop", model, words, {"whilst": ours, "simuleval": theirs}, amount.turns)


def peers_bench(folder: Path, sizes: Sequence[str], amount: Amount, overrides: list[str], out: Path | None) -> None:
    """The table of all comparisons. `folder`: of the peers' environment. `sizes`: keys of SIZES."""
    if unknown := set(sizes) - SIZES.keys():
        raise UserError(f"--size {unknown.pop()}: write one of {', '.join(SIZES)}")
    python, rows = python_of(folder), list[Figures]()
    torch.set_num_threads(amount.threads)
    for size in sizes:
        recipe = override(Recipe(), [*SIZES[size], *overrides])
        for compare in (training, decoding):
            with tempfile.TemporaryDirectory() as place:
                rows += compare(recipe, amount, python, Path(place), size)
    with tempfile.TemporaryDirectory() as place:
        rows += agent_loop(amount, Path(place), DEFAULT_MODEL)
    about = {"tokens in a batch": amount.batch_tokens, "turns": amount.turns}
    report("beside other toolkits", about, rows, provenance(device_name(CPU)), out)
