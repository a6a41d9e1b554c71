"""Slow reference implementations that compute everything anew, for tests and benchmarks of the fast ones."""

from collections.abc import Sequence

import torch
from torch import Tensor

from whilst.core.settings import Limits
from whilst.data.batches import Tokens
from whilst.data.vocabulary import BOS, EOS
from whilst.decoding.output import Output
from whilst.model.attention import Mask, dense_mask
from whilst.model.layers import DecoderLayer, self_attend
from whilst.model.monotonic_attention import MonotonicHeads
from whilst.model.transformer import Translator, most_likely
from whilst.policy import Policy, View


@torch.inference_mode()
def recomputed_states(
    model: Translator, source: Sequence[int], target: Sequence[int], reads: Sequence[int]
) -> tuple[Tensor, Tensor, Tensor | None]:
    """(1, source, width) encoder states, (1, width) the decoder state that writes the token after `target`, and (1)
    whether all monotone heads have stopped for that token, if the model has such heads.

    `reads` has an entry for every token of the target and one for the next.
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
    if model.settings.cross == "monotone":
        embedded = model.embed(model.target_embedding, prefix, positions)
        decoded, stopped = monotone_decoder(model, embedded, encoded, causal, reads)
        return encoded, decoded[:, -1], stopped
    cross = dense_mask(target_at, torch.tensor([list(reads)], device=device), source_at)
    return encoded, model.decode(prefix, positions, encoded, causal, cross)[:, -1], None


def monotone_decoder(
    model: Translator, states: Tensor, encoded: Tensor, causal: Mask, reads: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """The decoder of one sentence, each head moved along the source in a loop: (1, target, width) states, and (1)
    whether all heads stopped for the last token before its reads ended."""
    stopped = True
    for layer in model.decoder:
        assert isinstance(layer, DecoderLayer)
        assert isinstance(layer.cross, MonotonicHeads)
        states = self_attend(layer.attention, layer.attention_sublayer, states, causal, None, None)
        around = layer.cross_sublayer
        keys, values = layer.cross.keys_values(encoded)
        attend, stop = layer.cross.energies(around.before(states)[0], keys)
        mixed = torch.zeros_like(states).view(len(reads), layer.cross.heads, -1)
        for head in range(layer.cross.heads):
            position = 0
            for i, read in enumerate(reads):
                while position < read - 1 and stop[0, head, i, position] < 0:
                    position += 1
                weights = attend[0, head, i, : position + 1].softmax(0)
                mixed[i, head] = weights @ values[0, head, : position + 1]
            stopped &= bool(stop[0, head, -1, position] >= 0)
        states = around.after(states, layer.cross.out(mixed.flatten(1)[None]))
        around = layer.feed_forward_sublayer
        states = around.after(states, layer.feed_forward(around.before(states)[0]))
    return model.decoder_norm(states), torch.tensor([stopped], device=states.device)


@torch.inference_mode()
def translate_recomputed(model: Translator, source: Sequence[int], policy: Policy, limits: Limits) -> Output:
    """One sentence; every READ and every WRITE starts from the first token. Without times."""
    weight, output = model.target_embedding.weight, Output()
    decider = policy.start(torch.zeros(1, dtype=torch.long, device=weight.device))
    tokens = torch.tensor([list(source)], device=weight.device)
    decoded, last, read = weight.new_zeros(1, model.settings.width), BOS, 1
    while last != EOS and len(output.reads) < limits.of(len(source)):
        counts = torch.tensor([[read], [len(output.units)], [last]], device=weight.device)
        encoded, state, stopped = recomputed_states(model, source[:read], output.units, [*output.reads, read])
        view = View(counts[0], counts[1], tokens, counts[2], encoded, decoded, state, stopped)
        if read < len(source) and not bool(decider.write(view)):
            read += 1
            continue
        output.reads.append(read)
        decoded, last = state, int(most_likely(model.logits(state)))
        output.units += [last] * (last != EOS)
    return output
