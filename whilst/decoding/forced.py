"""Led along a given target: where would a policy WRITE each token? Decoding, but for who chooses the words."""

from collections.abc import Sequence

import torch

from whilst.data.vocabulary import BOS
from whilst.decoding.batched import check
from whilst.decoding.loop import pad
from whilst.model.transformer import Translator
from whilst.policy import Policy, View


@torch.inference_mode()
def walk_along(
    model: Translator,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    policy: Policy,
    numbers: Sequence[int] | None = None,
) -> list[list[int]]:
    """The reads at which a policy would WRITE each token, of all pairs together; `numbers` are their places.

    All rows WRITE their first token, then all their second: one that is ready waits for the others.
    """
    check(model, policy)
    device = model.target_embedding.weight.device
    source, lengths = pad(sources, device)
    target, counts = pad(targets, device)
    cache = model.start(len(sources), source.shape[1], target.shape[1])
    model.read(cache, source, lengths)
    decider = policy.start(torch.as_tensor(range(len(sources)) if numbers is None else numbers, device=device))
    read, last = torch.ones_like(lengths), torch.full_like(lengths, BOS)  # the first READ is given
    reads = torch.zeros_like(target)
    for place in range(target.shape[1]):
        finished = (read >= lengths) | (place >= counts)
        while not bool(finished.all()):
            ahead = model.look(cache, last, read) if policy.looks_ahead else None
            reading = ~(decider.write(View.of(cache, read, source, last, ahead)) | finished)
            if not bool(reading.any()):
                break
            read = read + reading.long()
            finished = finished | (read >= lengths)
        model.write(cache, last, read)
        reads[:, place] = read
        last = target[:, place]
    return [row[: len(given)] for row, given in zip(reads.tolist(), targets, strict=True)]
