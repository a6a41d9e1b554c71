"""Slow reference implementations that compute everything anew, for tests and benchmarks of the fast ones."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from whilst.core.settings import Limits
from whilst.data.batches import Tokens
from whilst.data.vocabulary import BOS, EOS, PAD
from whilst.data.writer import GuidedWriter
from whilst.decoding.output import Output
from whilst.model.attention import dense_mask
from whilst.model.transformer import Translator, most_likely
from whilst.policy import Policy, View

States = tuple[Tensor, Tensor, Tensor | None]


@torch.inference_mode()
def recomputed_states(
    model: Translator, source: Sequence[int], target: Sequence[int], reads: Sequence[int]
) -> States:
    """(1, source, width) encoder states, and (1, width) the decoder state that writes the token after `target`.

    `reads` has an entry for every token of the target and one for the next. In place of None, a function for
    monotone heads gives (1) whether all have stopped for the next token.
    """
    device = model.target_embedding.weight.device
    columns = torch.arange(len(source), device=device)[None]
    source_at = Tokens(torch.zeros_like(columns), columns)
    positions = torch.arange(len(target) + 1, device=device)[None]
    target_at = Tokens(torch.zeros_like(positions), positions)
    limit = torch.full_like(columns, len(source)) if model.bidirectional else columns + 1
    tokens = torch.tensor([list(source)], device=device)
    encoded = model.encode(tokens, columns, dense_mask(source_at, limit, source_at))
    prefix = torch.tensor([[BOS, *target]], device=device)
    causal = dense_mask(target_at, positions + 1, target_at)
    cross = dense_mask(target_at, torch.tensor([list(reads)], device=device), source_at)
    return encoded, model.decode(prefix, positions, encoded, causal, cross)[:, -1], None


@torch.inference_mode()
def translate_recomputed(
    model: Translator,
    source: Sequence[int],
    policy: Policy,
    limits: Limits,
    states: Callable[[Translator, Sequence[int], Sequence[int], Sequence[int]], States] = recomputed_states,
    writer: GuidedWriter | None = None,
) -> Output:
    """One sentence; every READ and every WRITE starts from the first token. Without times."""
    weight, output = model.target_embedding.weight, Output()
    decider = policy.start(torch.zeros(1, dtype=torch.long, device=weight.device))
    tokens = torch.tensor([list(source)], device=weight.device)
    decoded, last, read = weight.new_zeros(1, model.settings.width), BOS, 1
    while last != EOS and len(output.reads) < limits.of(len(source)):
        counts = torch.tensor([[read], [len(output.units)], [last]], device=weight.device)
        encoded, state, stopped = states(model, source[:read], output.units, [*output.reads, read])
        banned = torch.tensor([[PAD, *writer.banned(read)]], device=weight.device) if writer else None
        view = View(counts[0], counts[1], tokens, counts[2], encoded, decoded, state, stopped, banned)
        if read < len(source) and not bool(decider.write(view)):
            read += 1
            continue
        output.reads.append(read)
        decoded, last = state, int(most_likely(model.logits(state), banned))
        if writer:
            writer.write(last, read)
        output.units += [last] * (last != EOS)
    return output
