"""The translation model: a Transformer with a causal encoder, whose cross-attention is masked by `reads`.

Training and scoring process whole sentences with masks (`encode`, `decode`). Simultaneous decoding processes one
token at a time with caches (`read`, `lookahead`, `write`) and recomputes nothing.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from whilst.core.errors import UserError
from whilst.core.settings import MAX_POSITIONS, Model
from whilst.data.batches import Batch
from whilst.data.vocabulary import EOS, PAD
from whilst.model.attention import Mask, causal_mask, cross_mask, encoder_mask
from whilst.model.cache import Cache, KeysValues, LayerCache, lazy_zeros, row_numbers, select_rows
from whilst.model.layers import DecoderLayer, Dropout, EncoderLayer, Sublayer
from whilst.model.monotonic_attention import HeadPositions, MonotonicPass

OUTPUT_MULTIPLE = 64  # the output layer is padded to a multiple of this number of units


def angular_rates(width: int) -> Tensor:
    """(width / 2) angular frequencies of the sinusoids: wavelengths from 2 pi to 10,000 * 2 pi."""
    return torch.exp(torch.arange(width // 2) * (-torch.log(torch.tensor(10_000.0)) / max(1, width // 2 - 1)))


def sinusoids(positions: int, width: int) -> Tensor:
    """(positions, width): half sines, half cosines."""
    angles = torch.arange(positions)[:, None] * angular_rates(width)
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
        final = settings.norm == "pre"  # post-norm layers have normalised outputs
        self.encoder_norm = nn.LayerNorm(settings.width) if final else nn.Identity()
        self.decoder_norm = nn.LayerNorm(settings.width) if final else nn.Identity()
        self.dropout = Dropout(settings.dropout)
        self.predrawn_dropout = False  # see layers.Dropout
        self.bf16_in_eval = False  # see `to_bf16`
        self.prepacked_output: nn.Module | None = None  # the same output layer, faster (model/prepacked.py)
        self.register_buffer("sinusoids", sinusoids(MAX_POSITIONS + 1, settings.width), persistent=False)

    @property
    def bidirectional(self) -> bool:
        return self.settings.encoder == "bidirectional"

    @property
    def device(self) -> torch.device:
        return self.target_embedding.weight.device

    def parameter_count(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())

    def embed(self, embedding: nn.Embedding, tokens: Tensor, positions: Tensor) -> Tensor:
        table = self.get_buffer("sinusoids")
        return self.to_bf16(self.dropout(embedding(tokens) * self.settings.width**0.5 + table[positions]))

    def to_bf16(self, states: Tensor) -> Tensor:
        """Convert states under CUDA autocast, which would leave the residual stream in fp32."""
        enabled = self.training or self.bf16_in_eval
        return states.bfloat16() if enabled and torch.is_autocast_enabled("cuda") else states

    def enable_fast_paths(self) -> None:
        """Speed up compiled layers on a GPU. Results only change by rounding and by dropout's random numbers."""
        self.predrawn_dropout = self.bf16_in_eval = True
        for module in self.modules():
            if isinstance(module, Sublayer):  # monotonic heads need normalised input
                module.fold_norm = self.settings.cross != "monotone"

    def draw_dropout(self, layer: nn.Module, states: Tensor) -> Tensor | None:
        """(rows, tokens, values) random 16-bit numbers for all dropout in a layer, see `draw_random`."""
        if not (self.predrawn_dropout and self.training and self.settings.dropout):
            return None
        assert isinstance(layer, EncoderLayer | DecoderLayer)
        count = sum(layer.dropout_sizes)
        words = torch.empty(*states.shape[:-1], -(-count // 4), dtype=torch.int64, device=states.device)
        return words.random_(-(1 << 63), None).view(torch.int16)[..., :count]

    # Whole sentences.

    def encode(self, source: Tensor, positions: Tensor, mask: Mask) -> Tensor:
        """(rows, source) -> (rows, source, width)."""
        states = self.embed(self.source_embedding, source, positions)
        for layer in self.encoder:
            states = layer(states, mask, random=self.draw_dropout(layer, states))
        return self.to_bf16(self.encoder_norm(states))

    def decode(
        self,
        target: Tensor,
        positions: Tensor,
        encoded: Tensor,
        mask: Mask,
        cross: Mask,
        monotonic: MonotonicPass | None = None,
    ) -> Tensor:
        """(rows, target) -> (rows, target, width); `cross` is the mask of `reads`.

        Monotonic heads attend in expectation over all alignments, and append expected reads to `monotonic.delays`.
        """
        states = self.embed(self.target_embedding, target, positions)
        return self.decode_embedded(states, [encoded] * len(self.decoder), mask, cross, monotonic)

    def decode_embedded(
        self,
        states: Tensor,
        sources: Sequence[Tensor | KeysValues],
        mask: Mask,
        cross: Mask,
        monotonic: MonotonicPass | None = None,
    ) -> Tensor:
        """`decode` from embedded targets. `sources`: encoder states or their keys and values, for each layer."""
        for layer, source in zip(self.decoder, sources, strict=True):
            states = layer(states, source, mask, cross, monotonic, self.draw_dropout(layer, states))
        decoded: Tensor = self.decoder_norm(states)
        return decoded

    def keys_values(self, encoded: Tensor) -> list[KeysValues]:
        """Keys and values of encoder states for the cross-attention of each decoder layer."""
        return [layer.cross.keys_values(encoded) for layer in self.decoder if isinstance(layer, DecoderLayer)]

    def logits(self, decoded: Tensor) -> Tensor:
        """(…, width) -> (…, target units); the output layer is the target embedding."""
        if self.prepacked_output is None:
            return decoded @ self.target_embedding.weight.T
        packed: Tensor = self.prepacked_output(decoded)
        return packed

    def many_logits(self, decoded: Tensor) -> Tensor:
        """`logits` of many states at once. GPUs use the padded output layer, whose aligned rows are faster."""
        if decoded.device.type == "cpu":
            return self.logits(decoded)
        return (decoded @ self.padded_output().T)[..., : self.target_embedding.num_embeddings]

    def padded_output(self) -> Tensor:
        """(units rounded up, width) weights of the output layer, padded with zeros."""
        weight = self.target_embedding.weight
        return F.pad(weight, (0, 0, 0, -len(weight) % OUTPUT_MULTIPLE))

    # One token at a time.

    def start(
        self, rows: int, source_capacity: int, target_capacity: int, lazy: bool = False, lookaheads: int = 1
    ) -> Cache:
        """An empty cache for `rows` translations of at most these lengths.

        `lazy`: allocate memory when it is used (on CPUs only). `lookaheads`: how many states the method of this
        name will compute at once.
        """
        if max(source_capacity, target_capacity) > MAX_POSITIONS:
            raise UserError(
                f"a source of {source_capacity} units with a translation of up to {target_capacity}"
                f" is too long (each at most {MAX_POSITIONS}); split the sentence"
            )
        weight = self.target_embedding.weight
        heads, monotone = self.settings.heads, self.settings.cross == "monotone"
        size, layers = self.settings.width // heads, self.settings.decoder_layers
        lazy = lazy and weight.device.type == "cpu"

        # Zeros: a masked NaN would still make the attention's weighted sum NaN.
        def zeros(shape: tuple[int, ...], capacity: int, width: int) -> Tensor:
            if not lazy:
                return weight.new_zeros(*shape, heads, capacity, width)
            # The used part of a row is contiguous, which is faster to copy and takes fewer pages.
            return lazy_zeros((*shape, capacity, heads, width), weight.dtype).transpose(-3, -2)

        def empty(shape: tuple[int, ...], capacity: int, key_size: int = size) -> KeysValues:
            return zeros(shape, capacity, key_size), zeros(shape, capacity, size)

        counts = torch.zeros(rows, dtype=torch.long, device=weight.device)
        return Cache(
            # One more column than the source needs: see `read`.
            [empty((rows,), source_capacity + 1) for _ in range(self.settings.encoder_layers)],
            [empty((rows,), source_capacity + 1, size * (1 + monotone)) for _ in range(layers)],
            # One more column for each lookahead, because finished rows are computed with the others.
            empty((layers, rows), target_capacity + lookaheads),
            weight.new_zeros(rows, source_capacity + 1, self.settings.width),
            weight.new_zeros(rows, self.settings.width),
            counts,
            counts.clone(),
            [HeadPositions.initial(rows, heads, weight.device) for _ in range(layers * monotone)],
        )

    def read(self, cache: Cache, tokens: Tensor, counts: Tensor) -> None:
        """Encode `counts` more source tokens in each row: the first ones of `tokens` (rows, new).

        Tokens beyond a row's count go to the last column, which is never attended to.
        """
        steps = torch.arange(tokens.shape[1], device=tokens.device)
        capacity = cache.encoder[0][0].shape[2] - 1
        columns = torch.where(steps < counts[:, None], cache.read[:, None] + steps, capacity)
        cache.read_end = min(cache.read_end + len(steps), capacity)
        limit = (cache.read + counts)[:, None].expand_as(columns) if self.bidirectional else columns + 1
        states = self.embed(self.source_embedding, tokens, columns)
        mask = additive(visible(limit, cache.read_end), states)
        index = row_numbers(cache.rows, columns)[:, None]
        for layer, (keys, values) in zip(self.encoder, cache.encoder, strict=True):
            states = layer(states, mask, LayerCache(keys, values, columns, index, cache.read_end, cache.rows))
        self._store_source(cache, self.encoder_norm(states), columns, index)
        cache.read = cache.read + counts

    def encode_whole(self, tokens: Tensor, counts: Tensor) -> Tensor:
        """(rows, longest) sources -> (rows, longest, width), as `read` would encode them."""
        steps = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
        limit = counts[:, None].expand_as(steps) if self.bidirectional else steps + 1
        mask = additive(visible(limit, tokens.shape[1]), self.source_embedding.weight)
        return self.encode(tokens, steps, mask)

    def preload(self, cache: Cache, encoded: Tensor, counts: Tensor) -> None:
        """Store the encoder states of whole sources, so that a READ only has to increase `cache.read`."""
        steps = torch.arange(encoded.shape[1], device=counts.device)
        columns = torch.where(steps < counts[:, None], steps, cache.encoded.shape[1] - 1)
        self._store_source(cache, encoded, columns, row_numbers(cache.rows, columns)[:, None])
        cache.read_end = encoded.shape[1]

    def _store_source(self, cache: Cache, encoded: Tensor, columns: Tensor, index: Tensor) -> None:
        """Put encoder states (rows, new, width) and their cross-attention keys and values into these columns."""
        for (keys, values), new in zip(cache.source, self.keys_values(encoded), strict=True):
            LayerCache(keys, values, columns, index, 0, cache.rows).append(*new)
        cache.encoded[index, columns] = encoded

    def write(self, cache: Cache, last: Tensor, reads: Tensor) -> Tensor:
        """Decode one more target token in every row: (rows) last token, (rows) reads -> (rows, units) logits."""
        states = self.lookahead(cache, last, reads)
        cache.commit(states, torch.ones_like(cache.written, dtype=torch.bool))
        return self.logits(states)

    def lookahead(self, cache: Cache, last: Tensor, reads: Tensor) -> Tensor:
        """(rows, width) the decoder states that would write the next tokens now; `Cache.commit` accepts them."""
        return self.lookaheads(cache, last, reads[:, None])[:, 0]

    def lookaheads(self, cache: Cache, last: Tensor, reads: Tensor) -> Tensor:
        """`lookahead` for several values of `reads` at once: (rows, lookaheads) -> (rows, lookaheads, width).

        Each state has its own column of keys and values; `Cache.keep_lookahead` keeps one of them. Models with
        monotonic heads only support a single lookahead.
        """
        count, end = reads.shape[1], cache.written_end + reads.shape[1]
        columns = cache.written[:, None] + torch.arange(count, device=reads.device)
        token = self.embed(self.target_embedding, last[:, None], cache.written[:, None])
        states = token.expand(-1, count, -1)
        mask = additive(lookahead_mask(columns, end), states)
        cross = visible(reads, cache.read_end)
        cross = cross if cache.heads else additive(cross, states)
        stops: Sequence[HeadPositions | None] = cache.heads or [None] * len(self.decoder)
        keys, values = cache.decoder
        index = row_numbers(cache.rows, columns)[:, None]
        for number, (layer, encoded, heads) in enumerate(zip(self.decoder, cache.source, stops, strict=True)):
            source = select_rows(encoded, cache.rows, cache.read_end)
            layer_cache = LayerCache(keys[number], values[number], columns, index, end, cache.rows)
            states = layer(states, source, mask, cross, heads, None, layer_cache)
        decoded: Tensor = self.decoder_norm(states)
        return decoded


def most_likely(logits: Tensor, banned: Tensor | None = None) -> Tensor:
    """(…, units) -> (…): the token to write, never pad or bos (which precede eos in the vocabulary).

    `banned`: (…, any number) tokens that must not be written, filled up with pad.
    """
    if banned is not None:
        logits = logits.scatter(-1, banned, -torch.inf)
    return logits[..., EOS:].argmax(-1) + EOS


def visible(limit: Tensor, end: int) -> Tensor:
    """(rows, new) limits -> (rows, 1, new, end): the mask of attention.sees if each row is one sentence."""
    return (torch.arange(end, device=limit.device) < limit[..., None])[:, None]


def lookahead_mask(columns: Tensor, end: int) -> Tensor:
    """(rows, 1, lookaheads, end): each lookahead sees the columns before the first lookahead, and its own."""
    keys = torch.arange(end, device=columns.device)
    return ((keys < columns[:, :1, None]) | (keys == columns[..., None]))[:, None]


def additive(mask: Tensor, states: Tensor) -> Tensor:
    """A boolean mask as 0 and -inf, made once for all layers.

    Rows are padded in memory to a multiple of 8 values, because GPU kernels would copy other masks in each layer.
    """
    width = mask.shape[-1]
    wide = states.new_zeros(*mask.shape[:-1], -(-width // 8) * 8)
    return wide[..., :width].masked_fill_(~mask, -torch.inf)


def encode_batch(model: Translator, batch: Batch) -> Tensor:
    """(rows, source, width) encoder states of a whole batch, in its own layout."""
    return model.encode(batch.source, batch.source_at.position, encoder_mask(batch, model.bidirectional))


def decode_batch(model: Translator, batch: Batch, path: Tensor, monotonic: MonotonicPass | None = None) -> Tensor:
    """(rows, target, width) decoder states of a whole batch under the reads `path`."""
    source = encode_batch(model, batch)
    positions = batch.target_at.position
    return model.decode(batch.target, positions, source, causal_mask(batch), cross_mask(batch, path), monotonic)
