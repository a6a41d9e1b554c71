"""One sentence under the magnifying glass: what each target token gains from each source token, what search makes
of it, and what the agent does. How it is drawn stands in landscape.py."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from whilst.core.errors import UserError
from whilst.core.settings import Evaluate, Limits
from whilst.data.batches import Batch, pad_batch
from whilst.data.dataset import Split, TokenSequences
from whilst.data.text import cleaner
from whilst.data.vocabulary import EOS
from whilst.decoding.batched import translate_batch
from whilst.decoding.forced import walk_along
from whilst.evaluation.evaluate import choose
from whilst.model.checkpoint import LoadedRun
from whilst.model.transformer import Translator
from whilst.policy.full import Full
from whilst.search.agreement import bounded_agreement
from whilst.search.binary_search import Interval, PathDecoder, search


@dataclass(frozen=True)
class Explanation:
    """Everything is in units, end marks included."""

    source: list[str]
    target: list[str]
    chances: npt.NDArray[np.float64]  # (target, source) probability of the token after so many reads
    low: list[int]  # the interval of each token
    high: list[int]
    found: list[int]  # by search
    agent: list[int] | None  # where the agent would WRITE each token; None without one


def explain(trained: LoadedRun, source: str, target: str | None, first: int) -> Explanation:
    """Look at a sentence with the search interval that begins with `first` reads."""
    trained.require_causal_encoder()
    data = trained.recipe.data
    words = cleaner(data, data.source)(source).split()
    if not words:
        raise UserError("explain: the source sentence is empty")
    ids = [*trained.source.encode(words)[0], EOS]
    if target is None:
        # What the model says when it has read everything is what is looked at.
        wanted = [*translate_batch(trained.model, [ids], Full(), Limits())[0].units, EOS]
    else:
        wanted = [*trained.target.encode(cleaner(data, data.target)(target).split())[0], EOS]
        if len(wanted) == 1:
            raise UserError("explain: the target sentence is empty; leave it out for what the model says")
    settings = bounded_agreement(trained.recipe.search) if trained.recipe.agent.bounded else trained.recipe.search
    intervals = {interval[0]: number for number, interval in enumerate(settings.intervals)}
    if first not in intervals:
        raise UserError(f"--latency {first}: this run knows {', '.join(map(str, intervals))}")
    device = trained.model.target_embedding.weight.device
    batch = pad_batch(
        Split(TokenSequences.from_lists([ids]), TokenSequences.from_lists([wanted])), np.arange(1)
    ).to(device)
    interval = Interval(first, settings.size, settings.slope)
    low, high = interval.reads(batch, 0), interval.reads(batch, settings.size - 1)
    agent = None
    if trained.agent is not None:
        names = trained.agents
        name = names[intervals[first] % len(names)]  # a translation-based agent has but one
        agent = walk_along(trained.model, [ids], [wanted], choose(name, trained, Evaluate(), None))[0]
    return Explanation(
        [trained.source.vocabulary.units[unit] for unit in ids],
        [trained.target.vocabulary.units[unit] for unit in wanted],
        landscape(trained.model, batch),
        low[0].tolist(),
        high[0].tolist(),
        search(trained.model, batch, settings, first)[0].tolist(),
        agent,
    )


@torch.inference_mode()
def landscape(model: Translator, batch: Batch) -> npt.NDArray[np.float64]:
    """(target, source) chance of each reference token after each number of reads, on a path of one READ a WRITE."""
    decoder = PathDecoder(model, batch)
    position, length = batch.target_at.position, int(batch.source_lengths[0, 0])
    count = batch.labels.shape[1]
    chances = np.zeros((count, length))
    for offset in range(2 - count, length + 1):
        seen = (position + offset).clamp(1, length)
        found = decoder.predict(seen).probability[0].tolist()
        for i in range(count):
            # Only where this path is not bent by the ends of the sentence.
            if 1 <= i + offset <= length:
                chances[i, i + offset - 1] = found[i]
    return chances
