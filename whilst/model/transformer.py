"""Translator: an encoder that only looks back, a decoder whose view of the source is `reads`; no policy in it.

Two ways through the same weights. Training and scoring take whole sentences with masks (`encode`, `decode`).
Live translation takes one token at a time with explicit caches (`read`, `write`); nothing is recomputed.
"""

from collections.abc import Collection, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from whilst.core.errors import UserError
from whilst.core.settings import MAX_POSITIONS, Model
from whilst.data.batches import Tokens
from whilst.data.vocabulary import EOS, PAD
from whilst.model.attention import Mask, dense_mask
from whilst.model.cache import Cache, KeysValues, Slot, held, lazy_zeros, numbers
from whilst.model.layers import DecoderLayer, EncoderLayer, Sublayer
from whilst.model.monotonic_attention import HeadPositions, MonotonicPass

WIDTH = 64  # many logits at once are computed for a multiple of so many units


def sinusoids(positions: int, width: int) -> Tensor:
    """(positions, width): half sines, half cosines, wavelengths from 2 pi to 10,000 * 2 pi."""
    rates = torch.exp(torch.arange(width // 2) * (-torch.log(torch.tensor(10_000.0)) / max(1, width // 2 - 1)))
    angles = torch.arange(positions)[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class Translator(nn.Module):
    def __init__(self, settings: Model, source_units: int, target_units: int) -> None:
        super().__init__()
        self.settings = settings
        self.source_embedding = nn.Embedding(source_units, settings.width, padding_idx=PAD)
        self.target_embedding = nn.Embedding(target_units, settings.width, padding_idx=PAD)
        for embedding in (self.source_embedding, self.target_embedding):
            nn.init.normal_(embedding.weight, std=settings.width**-0.5)
            nn.init.zeros_(embedding.weight[PAD])
        self.encoder = nn.ModuleList(EncoderLayer(settings) for _ in range(settings.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(settings) for _ in range(settings.decoder_layers))
        final = settings.norm == "pre"  # post-norm layers end normalised
        self.encoder_norm = nn.LayerNorm(settings.width) if final else nn.Identity()
        self.decoder_norm = nn.LayerNorm(settings.width) if final else nn.Identity()
        self.dropout = nn.Dropout(settings.dropout)
        self.draws_lots = False  # for dropout, see there
        self.slims = False  # in eval mode too
        self.register_buffer("sinusoids", sinusoids(MAX_POSITIONS + 1, settings.width), persistent=False)

    @property
    def bidirectional(self) -> bool:
        return self.settings.encoder == "bidirectional"

    def parameter_count(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())

    def embed(self, embedding: nn.Embedding, tokens: Tensor, positions: Tensor) -> Tensor:
        table = self.get_buffer("sinusoids")
        return self.slim(self.dropout(embedding(tokens) * self.settings.width**0.5 + table[positions]))

    def slim(self, states: Tensor) -> Tensor:
        """As bf16 where a GPU trains under autocast, which leaves the sums between layers their own type."""
        wanted = self.training or self.slims
        return states.bfloat16() if wanted and torch.is_autocast_enabled("cuda") else states

    def hasten(self, shortcuts: Collection[str]) -> None:
        """Take these of train.shortcuts."""
        self.draws_lots, self.slims = "dropout" in shortcuts, "states" in shortcuts
        for module in self.modules():
            if isinstance(module, Sublayer):  # monotone heads take what is normalised already
                module.folds = "norms" in shortcuts and self.settings.cross != "monotone"

    def draw_lots(self, layer: nn.Module, states: Tensor) -> Tensor | None:
        """(rows, tokens, …) 16 random bits for everything that a layer may drop, four to a word."""
        if not (self.draws_lots and self.training and self.settings.dropout):
            return None
        assert isinstance(layer, EncoderLayer | DecoderLayer)
        words = torch.empty(*states.shape[:-1], -(-sum(layer.lots) // 4), dtype=torch.int64, device=states.device)
        return words.random_(-(1 << 63), None).view(torch.int16)[..., : sum(layer.lots)]

    # Whole sentences.

    def encode(self, source: Tensor, positions: Tensor, mask: Mask) -> Tensor:
        """(rows, source) -> (rows, source, width)."""
        states = self.embed(self.source_embedding, source, positions)
        for layer in self.encoder:
            states = layer(states, mask, lots=self.draw_lots(layer, states))
        return self.slim(self.encoder_norm(states))

    def decode(
        self,
        target: Tensor,
        positions: Tensor,
        encoded: Tensor,
        mask: Mask,
        cross: Mask,
        walk: MonotonicPass | None = None,
    ) -> Tensor:
        """(rows, target) -> (rows, target, width); `cross` is the mask that `reads` makes.

        Monotone heads are followed on all their walks at once, and say in `walk` how long these are on average.
        """
        states = self.embed(self.target_embedding, target, positions)
        return self.decode_embedded(states, [encoded] * len(self.decoder), mask, cross, walk)

    def decode_embedded(
        self,
        states: Tensor,
        sources: Sequence[Tensor | KeysValues],
        mask: Mask,
        cross: Mask,
        walk: MonotonicPass | None = None,
    ) -> Tensor:
        """The same when the target is embedded already; and for each layer the source, or keys and values of it."""
        for layer, source in zip(self.decoder, sources, strict=True):
            states = layer(states, source, mask, cross, walk, self.draw_lots(layer, states))
        decoded: Tensor = self.decoder_norm(states)
        return decoded

    def keys_values(self, encoded: Tensor) -> list[KeysValues]:
        """What each decoder layer sees of the source."""
        return [layer.cross.keys_values(encoded) for layer in self.decoder if isinstance(layer, DecoderLayer)]

    def logits(self, decoded: Tensor) -> Tensor:
        """(…, width) -> (…, target units); the output layer is the target embedding."""
        return decoded @ self.target_embedding.weight.T

    def many_logits(self, decoded: Tensor) -> Tensor:
        """The same for many states at once, where copying the weights is the smaller cost.

        A GPU is slow to write rows that begin anywhere: here they begin at multiples of WIDTH.
        """
        return (decoded @ self.wide_output().T)[..., : self.target_embedding.num_embeddings]

    def wide_output(self) -> Tensor:
        """The weights for a few more units than there are."""
        weight = self.target_embedding.weight
        return F.pad(weight, (0, 0, 0, -len(weight) % WIDTH))

    # One token at a time.

    def start(
        self, rows: int, source_capacity: int, target_capacity: int, lazy: bool = False, looks: int = 1
    ) -> Cache:
        """Empty caches for this many translations of at most these lengths.

        `lazy`: on a CPU, they take memory only as they are filled. `looks`: how many at one token, see `looks`.
        """
        lazy = lazy and self.target_embedding.weight.device.type == "cpu"
        if max(source_capacity, target_capacity) > MAX_POSITIONS:
            raise UserError(
                f"a source of {source_capacity} units with a translation of up to {target_capacity}"
                f" is too long (each at most {MAX_POSITIONS}); split the sentence"
            )
        weight = self.target_embedding.weight
        heads, monotone = self.settings.heads, self.settings.cross == "monotone"

        def empty(layers: int, capacity: int, keys: int = 1) -> KeysValues:
            size = self.settings.width // heads
            shapes = [(layers, rows, heads, capacity, width) for width in (keys * size, size)]
            # Zeros, not garbage: a masked NaN would still poison the sum that it is multiplied into.
            make = partial(lazy_zeros, dtype=weight.dtype) if lazy else weight.new_zeros
            return make(shapes[0]), make(shapes[1])

        def apart(layers: int, capacity: int, keys: int = 1) -> list[KeysValues]:
            made = [empty(1, capacity, keys) for _ in range(layers)]
            return [(both[0][0], both[1][0]) for both in made]

        counts = torch.zeros(rows, dtype=torch.long, device=weight.device)
        return Cache(
            # One column more than the source needs: see `read`.
            apart(self.settings.encoder_layers, source_capacity + 1),
            apart(self.settings.decoder_layers, source_capacity + 1, 2 if monotone else 1),
            # And one for each look beyond what the target needs: a row that is finished may still be looked at.
            empty(self.settings.decoder_layers, target_capacity + looks),
            weight.new_zeros(rows, source_capacity + 1, self.settings.width),
            weight.new_zeros(rows, self.settings.width),
            counts,
            counts.clone(),
            [
                HeadPositions.initial(rows, heads, weight.device)
                for _ in range(self.settings.decoder_layers * monotone)
            ],
        )

    def read(self, cache: Cache, tokens: Tensor, counts: Tensor) -> None:
        """Encode `counts` more source tokens in each row: the first ones of `tokens` (rows, new).

        What lies beyond a row's count goes to the last column, at which nothing ever looks.
        """
        steps = torch.arange(tokens.shape[1], device=tokens.device)
        capacity = cache.encoder[0][0].shape[2] - 1
        place = torch.where(steps < counts[:, None], cache.read[:, None] + steps, capacity)
        cache.read_end = min(cache.read_end + len(steps), capacity)
        limit = (cache.read + counts)[:, None].expand_as(place) if self.bidirectional else place + 1
        states = self.embed(self.source_embedding, tokens, place)
        mask = additive(visible(place, limit, cache.read_end), states)
        at = numbers(cache.rows, place)[:, None]
        for layer, (keys, values) in zip(self.encoder, cache.encoder, strict=True):
            states = layer(states, mask, Slot(keys, values, place, at, cache.read_end, cache.rows))
        self._show(cache, self.encoder_norm(states), place, at)
        cache.read = cache.read + counts

    def encode_whole(self, tokens: Tensor, counts: Tensor) -> Tensor:
        """(rows, longest) sources -> (rows, longest, width), as `read` would encode them."""
        steps = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
        limit = counts[:, None].expand_as(steps) if self.bidirectional else steps + 1
        mask = additive(visible(steps, limit, tokens.shape[1]), self.source_embedding.weight)
        return self.encode(tokens, steps, mask)

    def adopt(self, cache: Cache, encoded: Tensor, counts: Tensor) -> None:
        """Count whole sources as read, in rows that have read nothing; `read` cannot go on from there."""
        steps = torch.arange(encoded.shape[1], device=counts.device)
        place = torch.where(steps < counts[:, None], steps, cache.encoded.shape[1] - 1)
        self._show(cache, encoded, place, numbers(cache.rows, place)[:, None])
        cache.read, cache.read_end = cache.read + counts, encoded.shape[1]

    def _show(self, cache: Cache, encoded: Tensor, place: Tensor, at: Tensor) -> None:
        """Let the decoder see these (rows, new, width) states."""
        for (keys, values), new in zip(cache.source, self.keys_values(encoded), strict=True):
            Slot(keys, values, place, at, 0, cache.rows).append(*new)
        cache.encoded[at, place] = encoded

    def write(self, cache: Cache, last: Tensor, reads: Tensor) -> Tensor:
        """Decode one more target token in every row: (rows) last token, (rows) reads -> (rows, units) logits."""
        states = self.look(cache, last, reads)
        cache.commit(states, torch.ones_like(cache.written, dtype=torch.bool))
        return self.logits(states)

    def look(self, cache: Cache, last: Tensor, reads: Tensor) -> Tensor:
        """(rows, width) the states that would write the next token of every row now. Nothing counts as written."""
        return self.looks(cache, last, reads[:, None])[:, 0]

    def looks(self, cache: Cache, last: Tensor, reads: Tensor) -> Tensor:
        """The same after several numbers of READs at once: (rows, looks) -> (rows, looks, width).

        Their keys and values go to a column each, see `Cache.settle`. Monotone heads take one look at a time.
        """
        looks, end = reads.shape[1], cache.written_end + reads.shape[1]
        place = cache.written[:, None] + torch.arange(looks, device=reads.device)
        token = self.embed(self.target_embedding, last[:, None], cache.written[:, None])
        states = token.expand(-1, looks, -1)
        mask = additive(beside(place, end), states)
        cross = visible(place, reads, cache.read_end)
        cross = cross if cache.heads else additive(cross, states)
        walks: Sequence[HeadPositions | None] = cache.heads or [None] * len(self.decoder)
        keys, values = cache.decoder
        at = numbers(cache.rows, place)[:, None]
        for number, (layer, encoded, walk) in enumerate(zip(self.decoder, cache.source, walks, strict=True)):
            source = held(encoded, cache.rows, cache.read_end)
            slot = Slot(keys[number], values[number], place, at, end, cache.rows)
            assert isinstance(layer, DecoderLayer)
            states = layer.step(states, source, mask, cross, slot, walk)
        looked: Tensor = self.decoder_norm(states)
        return looked


def likeliest(logits: Tensor) -> Tensor:
    """(…, units) -> (…): what to write. Pad and bos, which come before eos, mean nothing in a translation."""
    return logits[..., EOS:].argmax(-1) + EOS


def visible(place: Tensor, limit: Tensor, end: int) -> Tensor:
    """(rows, 1, new, end): the rule of attention.sees for cached keys, where a row is a sentence."""
    queries = Tokens(torch.zeros_like(place[:, :1]), place)
    keys = Tokens(queries.segment, torch.arange(end, device=place.device)[None])
    return dense_mask(queries, limit, keys)


def beside(place: Tensor, end: int) -> Tensor:
    """(rows, 1, looks, end): each look sees what was written, which is before the first of them, and itself."""
    columns = torch.arange(end, device=place.device)
    return ((columns < place[:, :1, None]) | (columns == place[..., None]))[:, None]


def additive(mask: Tensor, states: Tensor) -> Tensor:
    """The same as a summand. All layers share it: of a boolean mask each would make one for itself.

    Its rows begin at multiples of 8 values: of others a GPU's kernels would make a copy that does, in each layer.
    """
    width = mask.shape[-1]
    wide = states.new_zeros(*mask.shape[:-1], -(-width // 8) * 8)
    return wide[..., :width].masked_fill_(~mask, -torch.inf)
