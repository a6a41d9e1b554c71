"""Forced decoding: the reads at which a policy would WRITE the tokens of given targets."""

from collections.abc import Sequence

import torch

from whilst.decoding.batched import check
from whilst.decoding.output import pad
from whilst.decoding.state import DecodingState
from whilst.model.transformer import Translator
from whilst.policy import Policy


@torch.inference_mode()
def forced_reads(
    model: Translator,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    policy: Policy,
    sentences: Sequence[int] | None = None,
) -> list[list[int]]:
    """The reads of each pair, all decoded together; `sentences` are their indices in the corpus.

    Rows WRITE in lockstep: first tokens, then second ones.
    """
    check(model, policy)
    device = model.target_embedding.weight.device
    source, lengths = pad(sources, device)
    target, counts = pad(targets, device)
    state = DecodingState(model, len(sources), source.shape[1], target.shape[1])
    state.load(source, lengths)
    indices = range(len(sources)) if sentences is None else sentences
    decider = policy.start(torch.as_tensor(indices, device=device))
    reads = torch.zeros_like(target)
    for column in range(target.shape[1]):
        while True:
            finished = (state.cache.read >= lengths) | (column >= counts)
            if bool(finished.all()):
                break
            reading = ~(decider.write(state.view(policy.needs_lookahead)) | finished)
            if not bool(reading.any()):
                break
            state.uncover(reading)
        reads[:, column] = state.cache.read
        state.write(tokens=target[:, column])
    return [row[: len(given)] for row, given in zip(reads.tolist(), targets, strict=True)]
