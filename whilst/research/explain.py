"""Explain one sentence: token probabilities after each number of reads, the searched reads, the agent's path."""

from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from whilst.core.errors import UserError
from whilst.core.files import writing
from whilst.core.settings import Evaluate, Limits, Search
from whilst.data.batches import Batch, pad_batch
from whilst.data.dataset import Split, TokenSequences
from whilst.data.text import cleaner
from whilst.data.vocabulary import EOS
from whilst.decoding.batched import forced_reads, translate_batch
from whilst.decoding.policies import policy_for
from whilst.model.checkpoint import LoadedRun
from whilst.model.transformer import Translator
from whilst.policy.fixed import Full
from whilst.search.binary_search import Interval, fill_table, search
from whilst.search.labels import bounded_agreement


@dataclass(frozen=True)
class Explanation:
    """What is drawn for one sentence. Source and target are units, end marks included."""

    source: list[str]
    target: list[str]
    probabilities: npt.NDArray[np.float64]  # (target, reads - 1) of the target token
    low: list[int]  # search interval of each token
    high: list[int]
    found: list[int]  # reads that search finds
    agent: list[int] | None  # reads at which the agent would WRITE each token; None without an agent


def explain(trained: LoadedRun, source: str, target: str | None, first: int) -> Explanation:
    """Explain a sentence with the search interval that begins with `first` reads."""
    trained.require_causal_encoder()
    model, data = trained.model, trained.recipe.data
    ids = [*trained.source.encode(cleaner(data, data.source)(source).split()), EOS]
    if ids == [EOS]:
        raise UserError("explain: the source sentence is empty")
    if target is None:
        target_ids = translate_batch(model, [ids], Full(), Limits())[0].sentence  # given the whole source
    else:
        target_ids = [*trained.target.encode(cleaner(data, data.target)(target).split()), EOS]
        if target_ids == [EOS]:
            raise UserError("explain: the target sentence is empty; leave it out for the translation of the model")
    settings = bounded_agreement(trained.recipe.search) if trained.recipe.agent.bounded else trained.recipe.search
    firsts = [interval[0] for interval in settings.intervals]
    if first not in firsts:
        raise UserError(f"--latency {first}: this run knows {', '.join(map(str, firsts))}")
    agent = None
    if trained.agent is not None:
        policy = trained.agents[firsts.index(first) % len(trained.agents)]  # a translation-based agent has only one
        agent = forced_reads(model, [ids], [target_ids], policy_for(trained, policy, Evaluate()))[0]
    split = Split(TokenSequences.from_lists([ids]), TokenSequences.from_lists([target_ids]))
    batch = pad_batch(split, np.arange(1)).to(model.device)
    interval = Interval(first, settings.size, settings.slope)
    return Explanation(
        [trained.source.units[unit] for unit in ids],
        [trained.target.units[unit] for unit in target_ids],
        reference_probabilities(model, batch),
        interval.reads(batch, 0)[0].tolist(),
        interval.reads(batch, settings.size - 1)[0].tolist(),
        search(model, batch, settings, first)[0].tolist(),
        agent,
    )


@torch.inference_mode()
def reference_probabilities(model: Translator, batch: Batch) -> npt.NDArray[np.float64]:
    """(target, reads - 1) of each reference token after each number of reads, on paths of one READ per WRITE."""
    length, count = batch.source.shape[1], batch.labels.shape[1]
    # The lowest offset gives the last token 1 read, the highest gives the first token the whole source.
    every_path = Interval(2 - count, length + count - 1)
    table = fill_table(model, batch, every_path, Search(target="reference"))
    paths = (torch.full_like(batch.labels, reads) for reads in range(1, length + 1))
    return torch.cat([table.predict(path).probability for path in paths]).T.double().cpu().numpy()


def draw(explanation: Explanation, out: Path) -> None:
    """Write the picture, in the format of its name (.png, .svg, .pdf)."""
    rows, columns = explanation.probabilities.shape
    figure = Figure(figsize=(2.4 + 0.5 * columns, 2.2 + 0.36 * rows), layout="constrained")
    axes = figure.add_subplot()
    shades = axes.imshow(explanation.probabilities, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    figure.colorbar(shades, ax=axes, label="probability of the target token", shrink=0.8)
    for row, (low, high) in enumerate(zip(explanation.low, explanation.high, strict=True)):
        box = Rectangle((low - 1.5, row - 0.5), high - low + 1, 1, fill=False, edgecolor="#8c8c8c", linewidth=0.8)
        axes.add_patch(box)
    axes.plot([], [], color="#8c8c8c", linewidth=0.8, label="search interval")
    # READs go to the right, WRITEs go down.
    paths = ("found by search", "o-", "#D55E00", explanation.found), ("agent", "D--", "#009E73", explanation.agent)
    for label, style, colour, reads in paths:
        if reads is not None:
            ticks = [g - 1 for g in reads]
            axes.plot(ticks, range(rows), style, color=colour, drawstyle="steps-post", markersize=5, label=label)
    # An unescaped `$` would start a formula.
    axes.set_xticks(range(columns), [u.replace("$", r"\$") for u in explanation.source], rotation=50, ha="right")
    axes.set_yticks(range(rows), [u.replace("$", r"\$") for u in explanation.target])
    axes.set_xlabel("last source token read")
    axes.set_ylabel("target token")
    figure.legend(loc="outside upper center", ncols=3, frameon=False)
    with mpl.rc_context({"svg.hashsalt": "whilst"}), writing(out) as temporary:
        figure.savefig(temporary, dpi=150, format=out.suffix.removeprefix("."))
