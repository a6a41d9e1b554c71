"""Measure the speed of training, of decoding and of the CPU engine (`whilst bench`); bench_serve.py: of the server.

Benchmarks print and write figures; tests only check that they run. Models have random weights, which are as fast as
trained ones.
"""

import itertools
import resource
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from whilst.core.config import load_recipe, override
from whilst.core.console import progress_bar
from whilst.core.distributed import device_name, pick_device
from whilst.core.errors import UserError
from whilst.core.policy_spec import PolicySpec
from whilst.core.provenance import provenance
from whilst.core.settings import Limits, Recipe
from whilst.data.batches import pad_batch, prefetch
from whilst.data.dataset import Dataset, Split, TokenSequences
from whilst.data.segment import WordSegmenter
from whilst.data.vocabulary import EOS, SPECIALS, Language
from whilst.decoding.batched import Decoding
from whilst.decoding.output import Output
from whilst.decoding.policies import policy_for
from whilst.engine.runtime import PRECISIONS, Engine, EngineSession
from whilst.evaluation.evaluate import loader, with_precision
from whilst.model.run_folder import model_folder
from whilst.model.transformer import Translator, decode_batch
from whilst.policy.fixed import WaitK
from whilst.research.bench_report import Figures, report
from whilst.training.estimate import clock, random_task, time_call
from whilst.training.loop import Loop
from whilst.training.train import stages

PAPER_UNITS = 17_192, 7_710  # of IWSLT15 en-vi
ALONE = 20  # sentences that are decoded one by one
CPU = torch.device("cpu")
TOKEN = 5  # any unit of the vocabulary

Stage = Literal["translate", "search", "agent"]


def peak_memory(device: torch.device) -> float:
    """GiB: of the device's allocator on a GPU, otherwise of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def random_model(recipe: Recipe, device: torch.device) -> Translator:
    """A translator with random weights and the paper's numbers of units."""
    torch.manual_seed(1)
    return Translator(replace(recipe.model, encoder="causal"), *PAPER_UNITS).to(device).eval()


# Training.


def random_dataset(pairs: int = 20_000, words: int = 8_000) -> Dataset:
    """Random words with the lengths and word frequencies of a corpus of talks."""
    random = np.random.default_rng(1)
    weights = 1 / np.arange(1, words + 1)
    weights /= weights.sum()
    splits = {}
    for name, count in (("train", pairs), ("valid", 200)):
        lengths = np.clip(random.lognormal(2.8, 0.65, count), 1, 170).astype(int)
        sides = []
        for ratio in (1.0, 1.22):
            sizes = (np.minimum(lengths, int(170 / ratio)) * ratio).astype(int).clip(min=1)
            drawn = (random.choice(words, size, p=weights) + len(SPECIALS) for size in sizes)
            sides.append(TokenSequences.from_lists([[*sentence.tolist(), EOS] for sentence in drawn]))
        splits[name] = Split(*sides)
    language = Language("xx", WordSegmenter(), (f"w{number}" for number in range(words)))
    return Dataset(Path(), {"splits": splits}, language, language, splits)


def train_bench(
    recipe: Path | None, stage: Stage, steps: int, overrides: list[str], name: str, out: Path | None
) -> None:
    """Time `steps` updates of a stage after as many to warm up; without a recipe, of the paper's model."""
    device = pick_device(name)
    all_stages = override(Recipe(), overrides) if recipe is None else load_recipe(recipe, overrides)
    chosen = replace(stages(replace(all_stages, stages=(stage,)))[0], start="")
    dataset = random_dataset() if recipe is None else Dataset.open(Path(chosen.data.dataset))
    loop = Loop(chosen, random_task(chosen, dataset, device))
    began = clock(device)
    if chosen.train.compile and device.type == "cuda":
        loop.compile()
    updates = prefetch(loop.updates())

    def run(count: int) -> tuple[int, int]:
        """Run `count` updates; returns their numbers of target tokens and of sentences."""
        tokens = sentences = 0
        for _ in progress_bar(range(count), "training", "steps"):
            micro_batches, batch_tokens, _ = next(updates)
            loop.update(micro_batches, batch_tokens)
            tokens += batch_tokens
            sentences += sum(batch.sentences for _, batch in micro_batches)
        return tokens, sentences

    run(1)
    first = clock(device) - began
    run(steps - 1)
    seconds, (tokens, sentences) = time_call(lambda: run(steps), device)
    about = {"parameters": loop.state.parameters, "tokens in a batch": chosen.train.batch_tokens}
    row = {
        "first update (s, compiling)": first,
        "ms an update": 1000 * seconds / steps,
        "target tokens/s": round(tokens / seconds),
        "sentences/s": round(sentences / seconds),
        "peak memory (GiB)": peak_memory(device),
    }
    title = {"translate": "training", "search": "fine-tuning", "agent": "agent training"}[stage]
    report(title, about, [row], provenance(device_name(device)), out)


# Decoding in batches and one by one.


Work = tuple[Decoding, list[list[int]]]  # how to decode, and the sources


def random_work(sentences: int, length: int, overrides: list[str], name: str) -> Work:
    """Random sources for a model with random weights, under wait-3."""
    recipe = override(Recipe(), overrides)
    model = random_model(recipe, pick_device(name))
    # Never write the end mark: every output is as long as its source.
    with torch.no_grad():
        model.target_embedding.weight[EOS] = 0
    random = np.random.default_rng(1)
    units = model.source_embedding.num_embeddings
    sources = [[*random.integers(4, units, length - 1).tolist(), EOS] for _ in range(sentences)]
    return Decoding(model, WaitK(3), Limits(1.0, 0), min(sentences, recipe.evaluate.batch)), sources


def work_of_run(run: Path, policy: PolicySpec, sentences: int | None, overrides: list[str], name: str) -> Work:
    """The run's test text under a policy, cut or repeated to `sentences`."""
    trained = loader(overrides, name)(model_folder(run, policy))
    settings = with_precision(trained).recipe.evaluate
    split = Dataset.open(Path(trained.recipe.data.dataset)).split(settings.split)
    chosen = policy_for(trained, policy, settings, split)
    if policy.about.needs_reference:
        raise UserError(f"policy {policy}: an oracle needs the reference; time agent-L, wait-K or full")
    sources = split.source.to_lists()
    repeated = list(itertools.islice(itertools.cycle(sources), sentences or len(sources)))
    return Decoding(trained.model, chosen, settings.limits, settings.batch), repeated


def two_passes(way: str, translate: Callable[[], Sequence[Output]], device: torch.device) -> Figures:
    """Translate twice. The first pass is a warm-up, in which a GPU captures its CUDA graphs."""
    first, _ = time_call(translate, device)
    seconds, outputs = time_call(translate, device)
    tokens = sum(len(output.sentence) for output in outputs)
    return {
        "way": way,
        "sentences/s": len(outputs) / seconds,
        "target tokens/s": tokens / seconds,
        "ms a token": 1000 * seconds / tokens,
        "sentences/s, first pass": len(outputs) / first,
    }


def decode_bench(work: Work, out: Path | None) -> None:
    """Time decoding in batches, and of ALONE sentences one by one."""
    together, sources = work
    model = together.model
    weight, alone = model.target_embedding.weight, replace(together, batch=1)
    ways: dict[str, Callable[[], Sequence[Output]]] = {
        f"in batches of {together.batch}": lambda: together.translate(sources),
        "one by one": lambda: alone.translate(sources[:ALONE]),
    }
    rows = [two_passes(way, translate, weight.device) for way, translate in ways.items()]
    about = {
        "policy": str(together.policy.spec),
        "parameters": model.parameter_count(),
        "precision": str(weight.dtype).removeprefix("torch."),
        "sentences": len(sources),
        "peak memory (GiB)": peak_memory(weight.device),
    }
    report("decoding", about, rows, provenance(device_name(weight.device)), out)


# A READ and a WRITE on a CPU: in PyTorch without and with caches, and in exported graphs.

Step = Callable[[int], Any]
Steps = tuple[Step, Step]  # a READ and a WRITE of the token at a position (from 0), in turn
Way = Callable[[int], Steps]  # makes the steps for a sentence of this length


def recomputed_steps(model: Translator, _: int) -> Steps:
    """Without caches, as in the authors' code: every READ and every WRITE is computed from the first token on."""

    def states(position: int) -> torch.Tensor:
        side = TokenSequences.from_lists([[TOKEN] * (position + 1)])
        batch = pad_batch(Split(side, side), np.arange(1))
        return decode_batch(model, batch, batch.target_at.position + 1)[:, -1]

    return states, lambda position: model.logits(states(position))


def cached_steps(model: Translator, length: int) -> Steps:
    cache = model.start(1, length, length)
    token, one = torch.full((1, 1), TOKEN), torch.ones(1, dtype=torch.long)
    return (
        lambda _: model.read(cache, token, one),
        lambda position: model.write(cache, token[0], one * (position + 1)),
    )


def exported_steps(engine: Engine, _: int) -> Steps:
    session = EngineSession(engine)

    def write(_: int) -> None:
        session.lookahead()
        session.logits()
        session.commit(TOKEN)

    return lambda _: session.read(TOKEN), write


def time_steps(steps: Steps, length: int) -> list[list[float]]:
    """(length, 2) milliseconds of every READ and WRITE."""
    return [[1000 * time_call(partial(step, i), CPU)[0] for step in steps] for i in range(length)]


@torch.inference_mode()
def measure(ways: dict[str, Way], length: int, repeats: int) -> list[Figures]:
    """Mean over positions of the median over sentences, in ms. Ways take turns: load slows all of them alike."""
    for way in ways.values():
        time_steps(way(length), min(length, 3))  # warm up
    times: dict[str, list[list[list[float]]]] = {name: [] for name in ways}
    for _ in progress_bar(range(repeats), f"sentences of {length} tokens", "sentences"):
        for name, way in ways.items():
            times[name].append(time_steps(way(length), length))
    rows: list[Figures] = []
    for name, sentences in times.items():
        read, write = np.median(sentences, axis=0).mean(axis=0).tolist()
        rows.append({"length": length, "way": name, "read": read, "write": write, "both": read + write})
    for slow in rows[:2]:
        for row in rows:
            row[f"{slow['way']} / this"] = slow["both"] / row["both"]
    return rows


def engine_bench(lengths: list[int], repeats: int, threads: int, overrides: list[str], out: Path | None) -> None:
    import onnxruntime as runtime

    from whilst.engine.export import make_engine

    model = random_model(override(Recipe(), overrides), CPU)
    ways: dict[str, Way] = {
        "recomputed": partial(recomputed_steps, model),
        "PyTorch, cached": partial(cached_steps, model),
    }
    for precision in PRECISIONS:
        ways[f"ONNX {precision}"] = partial(exported_steps, make_engine(model, None, precision))
    about = {"parameters": model.parameter_count(), "sentences": repeats, "onnxruntime": runtime.__version__}
    torch.set_num_threads(threads)
    rows = [row for length in lengths for row in measure(ways, length, repeats)]
    report("CPU engine, ms a token", about, rows, provenance(device_name(CPU)), out)
