"""What tests of decoding share: what was written, a policy that knows its rows, slow decoders."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from whilst.core.policy_spec import PolicySpec
from whilst.core.settings import Limits, Model
from whilst.data.batches import Tokens
from whilst.data.segment import WordSegmenter
from whilst.data.vocabulary import BOS, EOS, PAD, Language
from whilst.data.writer import GuidedWriter
from whilst.decoding.output import Output
from whilst.decoding.state import DecodingState
from whilst.model.attention import Mask, dense_mask
from whilst.model.layers import DecoderLayer, self_attend
from whilst.model.monotonic_attention import MonotonicHeads
from whilst.model.transformer import Translator, most_likely
from whilst.policy import Context, Decider, Policy, View, make_policy

States = tuple[Tensor, Tensor, Tensor | None]


def written(outputs: Sequence[Output]) -> list[tuple[list[int], list[int]]]:
    """Units and reads; times differ."""
    return [(output.units, output.reads) for output in outputs]


@dataclass
class Own(Decider):
    """Wait-k with a k for each row."""

    k: Tensor

    def write(self, view: View) -> Tensor:
        return view.read >= view.written + self.k

    def tensors(self) -> list[Tensor]:
        return [self.k]

    def set_tensors(self, tensors: list[Tensor]) -> None:
        [self.k] = tensors


class BySentence(Policy):
    """Its decider must be told which sentences it has, which of them are left, and which came into which row."""

    @property
    def spec(self) -> PolicySpec:
        return PolicySpec("by-sentence")

    def start(self, sentences: Tensor) -> Decider:
        return Own(sentences % 4 + 1)


@cache
def bare_context() -> Context:
    """Of a model with monotonic heads and no weights, without an agent."""
    with torch.device("meta"):
        model = Translator(Model(cross="monotone"), 8, 8)
    language = Language("x", WordSegmenter(), "abcd")
    return Context(model, (language, language), "run", None, (), 0.5, lambda: (1, 1), lambda _: [], False)


def policy(name: str) -> Policy:
    """A policy that needs nothing but its name: `full`, `wait-3`, …"""
    return make_policy(PolicySpec.parse(name), bare_context())


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
def recomputed_states(
    model: Translator, source: Sequence[int], target: Sequence[int], reads: Sequence[int]
) -> States:
    """(1, source, width) encoder states, and (1, width) the decoder state that writes the token after `target`.

    `reads` has an entry for every token of the target and one for the next. With monotonic heads also (1) whether
    all have stopped for the next token.
    """
    device = model.device
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
    if model.settings.cross == "monotone":
        embedded = model.embed(model.target_embedding, prefix, positions)
        decoded, stopped = monotone_decoder(model, embedded, encoded, causal, reads)
        return encoded, decoded[:, -1], stopped
    return encoded, model.decode(prefix, positions, encoded, causal, cross)[:, -1], None


@torch.inference_mode()
def recomputed_logits(
    model: Translator, source: Sequence[int], target: Sequence[int], reads: Sequence[int]
) -> Tensor:
    """(units): the logits of the token after `target`, without caches."""
    return model.logits(recomputed_states(model, source, target, reads)[1])[0]


@torch.inference_mode()
def translate_recomputed(
    model: Translator,
    source: Sequence[int],
    policy: Policy,
    limits: Limits,
    writer: GuidedWriter | None = None,
) -> Output:
    """One sentence; every READ and every WRITE starts from the first token. Without times."""
    weight, output = model.target_embedding.weight, Output()
    decider = policy.start(torch.zeros(1, dtype=torch.long, device=weight.device))
    tokens = torch.tensor([list(source)], device=weight.device)
    decoded, last, read = weight.new_zeros(1, model.settings.width), BOS, 1
    while last != EOS and len(output.reads) < limits.of(len(source)):
        counts = torch.tensor([[read], [len(output.units)], [last]], device=weight.device)
        encoded, state, stopped = recomputed_states(model, source[:read], output.units, [*output.reads, read])
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


@torch.inference_mode()
def translate_online(
    model: Translator, source: Sequence[int], policy: Policy, limits: Limits, sentence: int = 0
) -> Output:
    """One sentence whose source comes token by token, as in live translation; without times."""
    tokens, most = torch.tensor(source, device=model.device), limits.of(len(source))
    state, output = DecodingState(model, model.start(1, len(source), most)), Output()
    decider = policy.start(torch.full_like(tokens[:1], sentence))
    state.read(tokens[:1])
    read, unit = 1, BOS
    while unit != EOS and len(output.reads) < most:
        if read < len(source) and not decider.write(state.view(policy.needs_lookahead)):
            state.read(tokens[read : read + 1])
            read += 1
            continue
        unit = int(state.write())
        output.reads.append(read)
        output.units += [unit] * (unit != EOS)
    return output
