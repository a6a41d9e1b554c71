"""The paper's preliminary analysis: the probability of the reference by the share of the source that was read.

p(y_i | the first ceil(q J) source tokens, y_<i) for shares q is averaged for each token over the sentences of one
target length, and over all sentences by quarters of the target. J counts the source's end mark; the target's end
mark is left out.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import matplotlib as mpl
import torch
from matplotlib import colormaps
from matplotlib.figure import Figure
from torch import Tensor

from whilst.core.console import console, notes, progress_bar
from whilst.core.distributed import device_name, pick_device
from whilst.core.errors import UserError
from whilst.core.files import write_json
from whilst.core.policy_spec import PolicySpec
from whilst.core.provenance import provenance
from whilst.data.batches import pad_batch, padded_chunks
from whilst.data.dataset import Dataset, Split
from whilst.evaluation.figure import MARKERS, STYLE, save
from whilst.evaluation.identity import System, pair_name
from whilst.evaluation.tables import Grid
from whilst.model.attention import dense_mask
from whilst.model.checkpoint import load_run
from whilst.model.run_folder import base_objective
from whilst.model.transformer import Translator
from whilst.search.binary_search import PathDecoder, probability_and_argmax
from whilst.training.sampling import wait_k

QUARTERS = ("first quarter", "second quarter", "third quarter", "last quarter")
SHORTEST = 8  # shortest target length that is chosen by itself, if there are sentences from it on


@dataclass(frozen=True)
class Bucket:
    """The sentences of one target length."""

    target_length: int
    sentences: int
    chances: list[list[float]]  # (length, shares): mean probability of each token


@dataclass(frozen=True)
class Analysis:
    """Probabilities by the share of the source, as the file has them."""

    sentences: int
    tokens: int
    past: int | None  # the tokens before follow wait-k with this k; None: they have read the same share
    shares: list[float]
    mean: list[float]  # over all tokens
    quarters: dict[str, list[float]]  # by the token's position in its sentence
    bucket: Bucket


def usual_length(lengths: Sequence[int]) -> int:
    """The most frequent target length from SHORTEST on; the longest of equally frequent ones."""
    counts = Counter(length for length in lengths if length >= SHORTEST) or Counter(lengths)
    return max(counts, key=lambda length: (counts[length], length))


def after_past(decoder: PathDecoder, past: Tensor, path: Tensor) -> Tensor:
    """(rows, target) p of each token under the reads `path`, where the tokens before it follow the reads `past`.

    A row has each token twice, first as past token and then as query. A query sees itself and the past tokens
    before it.
    """
    batch, embedded = decoder.batch, decoder.embedded
    position = batch.target_at.position
    before = dense_mask(batch.target_at, position, batch.target_at)
    itself = torch.eye(position.shape[1], dtype=torch.bool, device=position.device).expand_as(before)
    causal = dense_mask(batch.target_at, position + 1, batch.target_at)
    rows = torch.cat([causal, torch.zeros_like(causal)], -1), torch.cat([before, itself], -1)
    cross = torch.cat([dense_mask(batch.target_at, reads, batch.source_at) for reads in (past, path)], 2)
    states = decoder.model.decode_embedded(
        torch.cat([embedded, embedded], 1), decoder.sources, torch.cat(rows, 2), cross
    )
    logits = decoder.logits_of(states[:, position.shape[1] :])
    return probability_and_argmax(logits, batch.labels, None)[0]


@torch.inference_mode()
def analyse(
    model: Translator,
    split: Split,
    shares: Sequence[float],
    length: int | None,
    tokens: int,
    past: int | None = None,
) -> Analysis:
    """One decoder pass for each share of the source; the model must be in eval mode."""
    device = model.device
    lengths = split.target.lengths - 1  # without the end mark
    chosen_length = usual_length(lengths.tolist()) if length is None else length
    inside = int((lengths == chosen_length).sum())
    if not inside:
        raise UserError(f"--length {chosen_length}: no sentence has this number of target units")
    counts = torch.zeros(len(QUARTERS), dtype=torch.long, device=device)
    totals = torch.zeros(len(QUARTERS), len(shares), dtype=torch.double, device=device)
    bucket = torch.zeros(chosen_length, len(shares), dtype=torch.double, device=device)
    order = split.target.lengths.argsort(kind="stable")
    for chosen in progress_bar(padded_chunks(split, order, tokens), "analysing", "batches"):
        batch = pad_batch(split, chosen).to(device)
        decoder, position, end = PathDecoder(model, batch), batch.target_at.position, batch.target_lengths - 1
        paths = [read_at(share, batch.source_lengths) for share in shares]
        if past is None:
            by_share = [decoder.predict(path).probability for path in paths]
        else:
            before = wait_k(past, position, batch.source_lengths)
            by_share = [after_past(decoder, before, path) for path in paths]
        probabilities = torch.stack(by_share, -1).double()
        real = position < end
        quarter = position[real] * len(QUARTERS) // end[real]
        counts += quarter.bincount(minlength=len(QUARTERS))
        totals.index_add_(0, quarter, probabilities[real])
        in_bucket = real & (end == chosen_length)
        bucket.index_add_(0, position[in_bucket], probabilities[in_bucket])
    bucket /= inside
    mean, quarters = totals.sum(0) / counts.sum(), totals / counts[:, None].clamp(min=1)
    return Analysis(
        sentences=len(split.target),
        tokens=int(counts.sum()),
        past=past,
        shares=list(shares),
        mean=mean.round(decimals=5).tolist(),
        quarters=dict(zip(QUARTERS, quarters.round(decimals=5).tolist(), strict=True)),
        bucket=Bucket(chosen_length, inside, bucket.round(decimals=5).tolist()),
    )


def read_at(share: float, lengths: torch.Tensor) -> torch.Tensor:
    """The share of each length, rounded up; minus 1e-9, since 0.07 * 100 is more than 7 in floating point."""
    return (share * lengths.double() - 1e-9).ceil().long().clamp(min=1).minimum(lengths)


def analyse_run(
    run: Path, split: str | None, length: int | None, points: int, past: int | None, out: Path, device: str
) -> None:
    """Analyse a run on a split of its dataset; write analysis.json, .png and .svg."""
    trained = load_run(run, pick_device(device))
    trained.require_causal_encoder()
    name = split or trained.recipe.evaluate.split
    shares = [number / points for number in range(1, points + 1)]
    dataset = Dataset.open(Path(trained.recipe.data.dataset))
    dataset.require_units("data.dataset", run)
    analysis = analyse(trained.model, dataset.split(name), shares, length, trained.recipe.train.batch_tokens, past)
    base = base_objective(trained.recipe, trained.path)
    system, pair = str(System.of(trained.recipe, PolicySpec("full"), base)), pair_name(trained.recipe.data)
    about = {"system": system, "pair": pair, "split": name, **asdict(analysis), "model_sha256": trained.checksum}
    about |= provenance(device_name(trained.device))
    write_json(out / "analysis.json", about)
    draw(analysis, f"{pair}, {name}", out / "analysis")
    print_analysis(analysis, f"{system}, {pair}, {name}: {analysis.sentences:,} sentences")
    notes.print(f"{out}: analysis.json, analysis.png, analysis.svg")


def draw(analysis: Analysis, where: str, stem: Path) -> None:
    """Write `stem`.png and `stem`.svg: the tokens of one target length beside the quarters of all sentences."""
    shades, bucket = colormaps["viridis"], analysis.bucket
    last = bucket.target_length - 1
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(11.6, 4.6), layout="constrained")
        left, right = figure.subplots(1, 2)
        for number, row in enumerate(bucket.chances):
            label = f"token {number + 1}" if number in (0, (last + 1) // 2, last) else None
            left.plot(analysis.shares, row, color=shades(number / max(1, last) * 0.9), linewidth=1.6, label=label)
        for (name, row), (colour, marker) in zip(analysis.quarters.items(), MARKERS.items(), strict=False):
            right.plot(analysis.shares, row, color=colour, marker=marker, markeredgecolor="white", label=name)
        right.plot(analysis.shares, analysis.mean, color="#333333", linewidth=1.6, label="all")
        left.set_title(f"{where}: {bucket.sentences} targets of {bucket.target_length} units", fontsize=11)
        right.set_title(f"all {analysis.sentences:,} sentences", fontsize=11)
        for axes in (left, right):
            axes.set_xlabel("share of the source read")
            axes.set_ylabel("probability of the reference token")
            axes.legend()
        save(figure, stem)


def print_analysis(analysis: Analysis, title: str) -> None:
    """Print about five shares of the source."""
    shown = range(len(analysis.shares) - 1, -1, -math.ceil(len(analysis.shares) / 5))[::-1]
    by_part = analysis.quarters | {"all": analysis.mean}
    rows = [[name, *(f"{row[number]:.3f}" for number in shown)] for name, row in by_part.items()]
    console.print(f"probability of the reference token after a share of the source\n{title}\n")
    console.print(Grid(["target", *(f"{analysis.shares[number]:.0%}" for number in shown)], rows).to_terminal())
