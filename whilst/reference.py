"""The slow obvious versions, which the fast ones are tested and measured against. Nothing else uses them."""

from collections.abc import Sequence

import torch

from whilst.attention import Tokens, dense_mask
from whilst.decode import Limits, Output, likeliest
from whilst.model import Translator
from whilst.policy import Policy, View
from whilst.vocab import BOS, EOS


@torch.inference_mode()
def masked_states(
    model: Translator, source: Sequence[int], target: Sequence[int], reads: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """(1, source, width) encoder states and (1, width) the decoder state that writes the token after `target`.

    Each target token sees what had been read when it was written: `reads` has an entry for every token of the
    target and one for the next.
    """
    device = model.target_embedding.weight.device
    places = torch.arange(len(source), device=device)[None]
    source_at = Tokens(torch.zeros_like(places), places)
    spots = torch.arange(len(target) + 1, device=device)[None]
    target_at = Tokens(torch.zeros_like(spots), spots)
    looks = torch.full_like(places, len(source)) if model.bidirectional else places + 1
    words = torch.tensor([list(source)], device=device)
    encoded = model.encode(words, places, dense_mask(source_at, looks, source_at))
    seen = torch.tensor([list(reads)], device=device)
    prefix = torch.tensor([[BOS, *target]], device=device)
    causal = dense_mask(target_at, spots + 1, target_at)
    decoded = model.decode(prefix, spots, encoded, causal, dense_mask(target_at, seen, source_at))
    return encoded, decoded[:, -1]


@torch.inference_mode()
def masked_logits(
    model: Translator, source: Sequence[int], target: Sequence[int], reads: Sequence[int]
) -> torch.Tensor:
    """(units): the next token's logits after `target`, everything computed from nothing."""
    return model.logits(masked_states(model, source, target, reads)[1])[0]


@torch.inference_mode()
def translate_recomputed(model: Translator, source: Sequence[int], policy: Policy, limits: Limits) -> Output:
    """One sentence, token by token; every READ and every WRITE computes everything from nothing."""
    weight = model.target_embedding.weight
    output = Output()
    decider = policy.start(torch.zeros(1, dtype=torch.long, device=weight.device))
    words = torch.tensor([list(source)], device=weight.device)
    decoded, last, read = weight.new_zeros(1, model.settings.width), BOS, 1
    while True:
        counts = torch.tensor([[read], [len(output.units)], [last]], device=weight.device)
        # What would be written now, under the reads so far: it brings the encoder's states with it.
        encoded, state = masked_states(model, source[:read], output.units, [*output.reads, read])
        view = View(counts[0], counts[1], words, counts[2], encoded, decoded, state)
        if read < len(source) and not bool(decider.write(view)):
            read += 1
            continue
        output.reads.append(read)
        output.times.append(0.0)
        decoded, last = state, int(likeliest(model.logits(state)))
        if last == EOS:
            return output
        output.units.append(last)
        if len(output.units) >= limits.of(len(source)):
            return output
