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
from whilst.data.vocabulary import BOS, EOS, Language
from whilst.decoding.output import Output
from whilst.decoding.reference import States, recomputed_states
from whilst.decoding.state import DecodingState
from whilst.model.attention import Mask, dense_mask
from whilst.model.layers import DecoderLayer, self_attend
from whilst.model.monotonic_attention import MonotonicHeads
from whilst.model.transformer import Translator
from whilst.policy import Context, Decider, Policy, View, make_policy


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
    """Of a model with monotone heads and no weights, without an agent."""
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
def monotone_states(
    model: Translator, source: Sequence[int], target: Sequence[int], reads: Sequence[int]
) -> States:
    """`recomputed_states` of a model with monotone heads."""
    encoded, _, _ = recomputed_states(model, source, target, reads)
    positions = torch.arange(len(target) + 1)[None]
    target_at = Tokens(torch.zeros_like(positions), positions)
    embedded = model.embed(model.target_embedding, torch.tensor([[BOS, *target]]), positions)
    causal = dense_mask(target_at, positions + 1, target_at)
    decoded, stopped = monotone_decoder(model, embedded, encoded, causal, reads)
    return encoded, decoded[:, -1], stopped


@torch.inference_mode()
def recomputed_logits(
    model: Translator, source: Sequence[int], target: Sequence[int], reads: Sequence[int]
) -> Tensor:
    """(units): the logits of the token after `target`, without caches."""
    states = monotone_states if model.settings.cross == "monotone" else recomputed_states
    return model.logits(states(model, source, target, reads)[1])[0]


@torch.inference_mode()
def translate_online(
    model: Translator, source: Sequence[int], policy: Policy, limits: Limits, sentence: int = 0
) -> Output:
    """One sentence whose source comes token by token, as in live translation; without times."""
    tokens, most = torch.tensor(source, device=model.target_embedding.weight.device), limits.of(len(source))
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
