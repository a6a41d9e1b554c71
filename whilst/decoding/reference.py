"""The slow obvious versions, which the fast ones are tested and measured against. Nothing else uses them."""

from collections.abc import Sequence

import torch

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
def masked_states(
    model: Translator, source: Sequence[int], target: Sequence[int], reads: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """(1, source, width) encoder states and (1, width) the decoder state that writes the token after `target`."""
    encoded, decoded, _ = walked_states(model, source, target, reads)
    return encoded, decoded


@torch.inference_mode()
def walked_states(
    model: Translator, source: Sequence[int], target: Sequence[int], reads: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """The same, and (1) whether all monotone heads have stopped for that token, where a model has such heads.

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
    if model.settings.cross == "monotone":
        decoded, stopped = walked(model, model.embed(model.target_embedding, prefix, spots), encoded, causal, reads)
        return encoded, decoded[:, -1], stopped
    decoded = model.decode(prefix, spots, encoded, causal, dense_mask(target_at, seen, source_at))
    return encoded, decoded[:, -1], None


def walked(
    model: Translator, states: torch.Tensor, encoded: torch.Tensor, causal: Mask, reads: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """The decoder of one sentence with every head led along the source by hand: (1, target, width) states, and
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
            place = 0
            for i, read in enumerate(reads):
                while place < read - 1 and stop[0, head, i, place] < 0:
                    place += 1
                weights = attend[0, head, i, : place + 1].softmax(0)
                mixed[i, head] = weights @ values[0, head, : place + 1]
            stopped &= bool(stop[0, head, -1, place] >= 0)
        states = around.after(states, layer.cross.out(mixed.flatten(1)[None]))
        around = layer.feed_forward_sublayer
        states = around.after(states, layer.feed_forward(around.before(states)[0]))
    return model.decoder_norm(states), torch.tensor([stopped], device=states.device)


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
        encoded, state, stopped = walked_states(model, source[:read], output.units, [*output.reads, read])
        view = View(counts[0], counts[1], words, counts[2], encoded, decoded, state, stopped)
        if read < len(source) and not bool(decider.write(view)):
            read += 1
            continue
        output.reads.append(read)
        output.times.append(0.0)
        decoded, last = state, int(most_likely(model.logits(state)))
        if last == EOS:
            return output
        output.units.append(last)
        if len(output.units) >= limits.of(len(source)):
            return output


def needed(model: Translator, source: Sequence[int], target: Sequence[int]) -> list[int]:
    """`agreement.needed` of one sentence, token by token and prefix by prefix; `target` has its end mark."""

    def agrees(count: int, place: int) -> bool:
        """Whether the token at this place is next after so much was read and what comes before was written."""
        logits = masked_logits(model, source[:count], target[:place], [count] * (place + 1))
        return int(most_likely(logits[None])) == target[place]

    reads: list[int] = []
    for place in range(len(target)):
        first = reads[-1] if reads else 1
        reads.append(next((g for g in range(first, len(source)) if agrees(g, place)), len(source)))
    return reads
