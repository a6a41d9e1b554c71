"""Speed of decoding, in batches and one by one."""

import itertools
from pathlib import Path

import numpy as np
import torch

from whilst.core.distributed import pick_device
from whilst.core.errors import UserError
from whilst.core.policy_spec import PolicySpec
from whilst.core.settings import Limits
from whilst.data.dataset import Dataset
from whilst.data.vocabulary import EOS
from whilst.decoding.batched import Decoding, translate_online
from whilst.decoding.policies import policy_for
from whilst.decoding.reference import translate_recomputed
from whilst.evaluation.evaluate import with_precision, with_settings
from whilst.model.checkpoint import load_run
from whilst.model.run_folder import model_folder
from whilst.policy.fixed import WaitK
from whilst.research.bench.common import Figures, peak_memory, print_figures, random_model, seconds_of

ALONE = 20  # sentences that are decoded one by one


def decode_bench(
    recipe: Path | None, sentences: int, length: int, overrides: list[str], name: str, out: Path | None
) -> None:
    """Decode random sources with random weights."""
    device = pick_device(name)
    chosen, model = random_model(recipe, overrides, device)
    # Never write the end mark: every output is as long as its source.
    with torch.no_grad():
        model.target_embedding.weight[EOS] = 0
    limits, policy = Limits(1.0, 0), WaitK(3)
    random = np.random.default_rng(1)

    def sources(count: int) -> list[list[int]]:
        units = model.source_embedding.num_embeddings
        return [[*random.integers(4, units, length - 1).tolist(), EOS] for _ in range(count)]

    many, one = sources(sentences), sources(1)
    together = Decoding(model, policy, limits, min(sentences, chosen.evaluate.batch))
    ways = (
        lambda: together.translate(many),
        lambda: translate_online(model, one[0], policy, limits),
        lambda: translate_recomputed(model, one[0], policy, limits),
    )
    for way in ways:
        way()  # warms up: a GPU captures its steps
    batched, cached, recomputed = (seconds_of(way, device)[0] for way in ways)
    figures = {
        "parameters": model.parameter_count(),
        "source length": length,
        "batched: target tokens/s": round(sentences * length / batched),
        "batched: sentences/s": round(sentences / batched, 1),
        "one by one, cached: ms a token": 1000 * cached / length,
        "one by one, cached: target tokens/s": round(length / cached, 1),
        "one by one, recomputed: ms a token": 1000 * recomputed / length,
        "recomputed / cached": recomputed / cached,
        "peak memory (GiB)": peak_memory(device),
    }
    print_figures("decoding under wait-3", figures, device, out)


def run_bench(
    run: Path, policy: PolicySpec, sentences: int | None, overrides: list[str], name: str, out: Path | None
) -> None:
    """Decode the run's test text under a policy: all of it together, and some sentences one by one.

    The text is cut or repeated to `sentences`.
    """
    device = pick_device(name)
    trained = with_settings(load_run(model_folder(run, policy), device), overrides)
    settings = with_precision(trained, trained.recipe.evaluate).recipe.evaluate
    split = Dataset.open(Path(trained.recipe.data.dataset)).split(settings.split)
    chosen, limits = policy_for(trained, policy, settings, split), settings.limits
    if policy.about.needs_reference:
        raise UserError(f"policy {policy}: an oracle needs the reference; time agent-L, wait-K or full")
    every = [split.source[number].tolist() for number in range(len(split.source))]
    many = list(itertools.islice(itertools.cycle(every), sentences or len(every)))
    together = Decoding(trained.model, chosen, limits, settings.batch)
    figures: Figures = {
        "parameters": trained.model.parameter_count(),
        "sentences": len(many),
        "sentences together": settings.batch,
        "precision": settings.precision,
        **two_passes(together, many, "together", device),
        **two_passes(Decoding(trained.model, chosen, limits, 1), every[:ALONE], "one by one", device),
        "peak memory (GiB)": peak_memory(device),
    }
    print_figures(f"decoding under {policy}", figures, device, out)


def two_passes(decoding: Decoding, sources: list[list[int]], label: str, device: torch.device) -> Figures:
    """The first pass warms up: a GPU captures its steps in it."""
    first, _ = seconds_of(lambda: decoding.translate(sources), device)
    seconds, outputs = seconds_of(lambda: decoding.translate(sources), device)
    figures: Figures = {
        f"{label}, first pass: sentences/s": round(len(sources) / first, 1),
        f"{label}: sentences/s": round(len(sources) / seconds, 1),
        f"{label}: target tokens/s": round(sum(len(output.units) + 1 for output in outputs) / seconds),
    }
    if decoding.recorded is not None:
        figures[f"{label}: steps"] = len(decoding.recorded.times)
        figures[f"{label}: ms a step"] = 1000 * seconds / len(decoding.recorded.times)
        figures[f"{label}: recordings"] = len(decoding.recorded.recorded)
    return figures
