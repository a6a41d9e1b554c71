"""Beam search, for full-sentence translation only: a beam revises output, which live translation must not."""

import itertools
import time
from collections.abc import Sequence

import torch

from whilst.core.settings import Limits
from whilst.data.vocabulary import BOS, EOS
from whilst.decoding.output import Output, pad
from whilst.model.transformer import Translator


@torch.inference_mode()
def beam_search(
    model: Translator, sources: Sequence[Sequence[int]], beam: int, limits: Limits, length_penalty: float = 1.0
) -> list[Output]:
    """The most probable translations by log-probability / length ** length_penalty."""
    began = time.perf_counter()
    device = model.target_embedding.weight.device
    source, lengths = pad(sources, device)
    rows, most = len(sources), [limits.of(len(s)) for s in sources]
    cache = model.start(rows, source.shape[1], max(most))
    model.read(cache, source, lengths)
    cache.select(torch.arange(rows, device=device).repeat_interleave(beam))
    reads = lengths.repeat_interleave(beam)
    last = torch.full((rows * beam,), BOS, device=device)
    # All beams of a row begin equal: only the first may be extended.
    scores = torch.full((rows, beam), -torch.inf, device=device)
    scores[:, 0] = 0
    history = torch.empty((rows, beam, 0), dtype=torch.long, device=device)
    best: list[tuple[float, list[int]]] = [(-torch.inf, []) for _ in sources]  # eos is part of the path
    open_rows = set(range(rows))
    step = 0
    while open_rows:
        step += 1
        logs = model.write(cache, last, reads).log_softmax(-1)
        logs[:, :EOS] = -torch.inf  # pad and bos
        units = logs.shape[1]
        # Twice as many candidates as beams: at most `beam` of them end, so `beam` are left to go on.
        top = (scores[:, :, None] + logs.view(rows, beam, units)).flatten(1).topk(2 * beam)
        parent, unit = top.indices // units, top.indices % units
        ended = unit == EOS
        paths = torch.cat([history.gather(1, parent[..., None].expand(-1, -1, step - 1)), unit[..., None]], -1)
        scaled, ends = (top.values / step**length_penalty).tolist(), ended.tolist()
        for row, rank in itertools.product(open_rows, range(2 * beam)):
            # An end that ranks below the beam would not have been reached by a beam of this width.
            has_ended = ends[row][rank] and rank < beam
            is_cut = step >= most[row] and rank == 0 and not best[row][1]  # at the limit, if none has ended
            if (has_ended or is_cut) and scaled[row][rank] > best[row][0]:
                best[row] = (scaled[row][rank], paths[row, rank].tolist())
        going = top.values.masked_fill(ended, -torch.inf).topk(beam)
        scores = going.values
        chosen = parent.gather(1, going.indices)
        history = paths.gather(1, going.indices[..., None].expand(-1, -1, step))
        last = history[:, :, -1].flatten()
        cache.select((torch.arange(rows, device=device)[:, None] * beam + chosen).flatten())
        # A row is finished when its best ended path scores above every open one now.
        ceiling = (scores[:, 0] / step**length_penalty).tolist()
        open_rows -= {row for row in open_rows if best[row][0] >= ceiling[row] or step >= most[row]}
    now = 1000 * (time.perf_counter() - began)
    return [
        Output([unit for unit in path if unit != EOS], [len(s)] * len(path), [now] * len(path))
        for s, (_, path) in zip(sources, best, strict=True)
    ]
