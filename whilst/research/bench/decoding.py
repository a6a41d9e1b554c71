"""Speed of decoding, in batches and one by one."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from whilst.core.distributed import pick_device
from whilst.core.errors import UserError
from whilst.core.policy_spec import PolicySpec
from whilst.core.settings import Limits
from whilst.data.dataset import Dataset
from whilst.data.vocabulary import EOS
from whilst.decoding.batched import Decoding
from whilst.decoding.output import Output
from whilst.decoding.policies import policy_for
from whilst.decoding.reference import translate_recomputed
from whilst.evaluation.evaluate import with_precision, with_settings
from whilst.model.checkpoint import load_run
from whilst.model.run_folder import model_folder
from whilst.model.transformer import Translator
from whilst.policy import Policy
from whilst.policy.fixed import WaitK
from whilst.research.bench.common import Figures, peak_memory, random_model, report, seconds_of

ALONE = 20  # sentences that are decoded one by one


@dataclass(frozen=True)
class Work:
    """What is to be decoded, and how."""

    model: Translator
    policy: Policy
    limits: Limits
    batch: int
    sources: list[list[int]]


def random_work(recipe: Path | None, sentences: int, length: int, overrides: list[str], name: str) -> Work:
    """Random sources for random weights, under wait-3."""
    chosen, model = random_model(recipe, overrides, pick_device(name))
    # Never write the end mark: every output is as long as its source.
    with torch.no_grad():
        model.target_embedding.weight[EOS] = 0
    random = np.random.default_rng(1)
    units = model.source_embedding.num_embeddings
    sources = [[*random.integers(4, units, length - 1).tolist(), EOS] for _ in range(sentences)]
    return Work(model, WaitK(3), Limits(1.0, 0), min(sentences, chosen.evaluate.batch), sources)


def work_of_run(run: Path, policy: PolicySpec, sentences: int | None, overrides: list[str], name: str) -> Work:
    """The run's test text under a policy, cut or repeated to `sentences`."""
    trained = with_settings(load_run(model_folder(run, policy), pick_device(name)), overrides)
    settings = with_precision(trained, trained.recipe.evaluate).recipe.evaluate
    split = Dataset.open(Path(trained.recipe.data.dataset)).split(settings.split)
    chosen = policy_for(trained, policy, settings, split)
    if policy.about.needs_reference:
        raise UserError(f"policy {policy}: an oracle needs the reference; time agent-L, wait-K or full")
    every = [split.source[number].tolist() for number in range(len(split.source))]
    many = list(itertools.islice(itertools.cycle(every), sentences or len(every)))
    return Work(trained.model, chosen, settings.limits, settings.batch, many)


def two_passes(way: str, translate: Callable[[], Sequence[Output]], device: torch.device) -> Figures:
    """Translate twice: the first pass warms up, since a GPU captures its steps in it."""
    first, _ = seconds_of(translate, device)
    seconds, outputs = seconds_of(translate, device)
    tokens = sum(len(output.sentence) for output in outputs)
    return {
        "way": way,
        "sentences/s": len(outputs) / seconds,
        "target tokens/s": tokens / seconds,
        "ms a token": 1000 * seconds / tokens,
        "sentences/s, first pass": len(outputs) / first,
    }


def decode_bench(work: Work, with_recomputed: bool, out: Path | None) -> None:
    """Decode all together, some one by one, and one without caches."""
    model, policy, limits = work.model, work.policy, work.limits
    weight = model.target_embedding.weight
    together, alone = (Decoding(model, policy, limits, batch) for batch in (work.batch, 1))
    ways: dict[str, Callable[[], Sequence[Output]]] = {
        f"in batches of {work.batch}": lambda: together.translate(work.sources),
        "one by one": lambda: alone.translate(work.sources[:ALONE]),
    }
    if with_recomputed:
        ways["one by one, recomputed"] = lambda: [translate_recomputed(model, work.sources[0], policy, limits)]
    rows = [two_passes(way, translate, weight.device) for way, translate in ways.items()]
    about = {
        "policy": str(policy.spec),
        "parameters": model.parameter_count(),
        "precision": str(weight.dtype).removeprefix("torch."),
        "sentences": len(work.sources),
        "peak memory (GiB)": peak_memory(weight.device),
    }
    report("decoding", about, rows, weight.device, out)
