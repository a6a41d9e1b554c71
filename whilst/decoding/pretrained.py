"""Pretrained translation models of the Hugging Face hub as offline models: Marian (opus-mt), M2M100 and NLLB.

Their tokenisers are wrapped as `Language`s, so that all other code treats them like trained runs. Needs the extra
`hf`.
"""

import hashlib
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from whilst.core.config import override
from whilst.core.errors import UserError, name_missing_extra
from whilst.core.settings import CHECKPOINT, Evaluate, Model, Objective, Recipe
from whilst.data.segment import Segmenter
from whilst.data.vocabulary import EOS, SPECIALS, UNK, Language
from whilst.data.writer import WordRules
from whilst.decoding.offline import OfflineModel, attention_layer, most_attended
from whilst.decoding.output import pad

POLICIES = "local-agreement-2", "align-att-4", "full"  # evaluated by default
KNOWN = "marian", "m2m_100"  # NLLB models are of the latter type
# ISO 639-1 codes, and the codes of NLLB and multilingual Marian models for the same languages.
PAIRS = """
af:afr am:amh ar:arb as:asm az:azj be:bel bg:bul bn:ben bs:bos ca:cat cs:ces cy:cym da:dan de:deu el:ell en:eng
eo:epo es:spa et:est eu:eus fa:pes fi:fin fr:fra ga:gle gl:glg gu:guj ha:hau he:heb hi:hin hr:hrv ht:hat hu:hun
hy:hye id:ind ig:ibo is:isl it:ita ja:jpn jv:jav ka:kat kk:kaz km:khm kn:kan ko:kor ky:kir lb:ltz lg:lug ln:lin
lo:lao lt:lit lv:lvs mg:plt mi:mri mk:mkd ml:mal mn:khk mr:mar ms:zsm mt:mlt my:mya nb:nob ne:npi nl:nld nn:nno
no:nob oc:oci or:ory pa:pan pl:pol ps:pbt pt:por ro:ron ru:rus rw:kin sd:snd si:sin sk:slk sl:slv sn:sna so:som
sq:als sr:srp st:sot su:sun sv:swe sw:swh ta:tam te:tel tg:tgk th:tha ti:tir tk:tuk tl:tgl tr:tur tt:tat ug:uig
uk:ukr ur:urd uz:uzn vi:vie wo:wol xh:xho yi:ydd yo:yor zh:zho zu:zul
"""
CODES = dict(pair.split(":") for pair in PAIRS.split())


@dataclass(frozen=True)
class Pretrained:
    """A loaded checkpoint, with the attributes of `LoadedRun` that apply to it."""

    path: Path  # the name of the checkpoint, with "hf:"
    recipe: Recipe
    source: Language
    target: Language
    model: "PretrainedModel"

    @property
    def modules(self) -> list[nn.Module]:
        return [self.model.model]

    @property
    def device(self) -> torch.device:
        device: torch.device = self.model.model.device
        return device

    @cached_property
    def rules(self) -> WordRules:
        return WordRules.of(self.recipe, self.source, self.target)

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of the weights."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.model.model.state_dict().items()):
            digest.update(name.encode() + tensor.cpu().numpy().tobytes())
        return digest.hexdigest()


class TokeniserSegmenter(Segmenter):
    """Splits words with the tokeniser of a checkpoint."""

    kind = "pretrained"
    first_mark = "\u2581"

    def __init__(self, split: Callable[[str], list[str]]) -> None:
        self._split = split

    def split(self, word: str) -> list[str]:
        return self._split(word) or [SPECIALS[UNK]]


class PretrainedModel(OfflineModel):
    def __init__(self, model: Any, source: Sequence[int], target: Sequence[int], frame: "Frame") -> None:
        """`source`, `target`: the checkpoint's ids of the units of the two languages."""
        self.model, self.source, self.frame = model, source, frame
        self.max_positions = model.config.max_position_embeddings - len(frame.before) - len(frame.after)
        self.target = torch.tensor(target, device=model.device)

    def encode(self, sources: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        frame = self.frame
        rows = [[*frame.before, *(self.source[unit] for unit in units), *frame.after] for units in sources]
        tokens, lengths = pad(rows, self.model.device, frame.pad)
        encoder = self.model.get_encoder()
        return encoder(tokens, attention_mask=_mask(lengths, tokens.shape[1])).last_hidden_state, lengths

    def predict(
        self, encoded: Tensor, lengths: Tensor, prefixes: Sequence[Sequence[int]], align: bool
    ) -> tuple[Tensor, Tensor | None]:
        start, table = self.frame.start, self.target.tolist()
        rows = [[*start, *(table[unit] for unit in prefix)] for prefix in prefixes]
        out = self.model(
            encoder_outputs=(encoded,),
            attention_mask=_mask(lengths, encoded.shape[1]),
            decoder_input_ids=pad(rows, encoded.device, self.frame.pad)[0],
            output_attentions=align,
            use_cache=False,
        )
        units = out.logits[:, len(start) - 1 :, self.target[EOS:]].argmax(-1) + EOS  # never pad or bos
        if not align:
            return units, None
        before, after = len(self.frame.before), len(self.frame.after)
        weights = out.cross_attentions[attention_layer(len(out.cross_attentions))].mean(1)
        return units, most_attended(weights[:, len(start) - 1 :, before:], lengths - before - after)


def _mask(lengths: Tensor, longest: int) -> Tensor:
    return (torch.arange(longest, device=lengths.device) < lengths[:, None]).long()


@dataclass(frozen=True)
class Frame:
    """The special tokens around units, as ids of the checkpoint."""

    before: Sequence[int]  # before the units of a source, such as the code of a language
    after: Sequence[int]  # after the units of a source: its end mark
    start: Sequence[int]  # before the units of a translation
    pad: int


def open_pretrained(name: str, overrides: Sequence[str], device: torch.device) -> Pretrained:
    """Load a checkpoint from the hub or a folder. `name`: its name or path with "hf:" before it.

    `overrides` of data.source and data.target name the languages, see `find_code`.
    """
    with name_missing_extra():
        import transformers
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    requested = override(Recipe(run=name, evaluate=Evaluate(batch=16, policies=POLICIES)), list(overrides))
    config = _load(transformers.AutoConfig.from_pretrained, name)
    if config.model_type not in KNOWN:
        raise UserError(
            f"{name}: is a {config.model_type} model; supported are Marian (opus-mt), M2M100 and NLLB models"
        )
    tokeniser = _load(transformers.AutoTokenizer.from_pretrained, name)
    load = transformers.AutoModelForSeq2SeqLM.from_pretrained
    model = _load(partial(load, attn_implementation="eager", dtype=torch.float32), name)
    recipe, frame = _frame(requested, tokeniser, model)
    specials = {*tokeniser.all_special_tokens, *SPECIALS}
    basic = [tokeniser.pad_token_id, tokeniser.pad_token_id, tokeniser.eos_token_id, tokeniser.unk_token_id]
    languages, tables = list[Language](), list[list[int]]()
    source = tokeniser.get_vocab()  # ids by piece
    target = tokeniser.target_encoder if getattr(tokeniser, "separate_vocabs", False) else source
    for code, vocabulary in ((recipe.data.source, source), (recipe.data.target, target)):
        pieces = sorted((id, piece) for piece, id in vocabulary.items() if piece not in specials)
        languages.append(Language(code, TokeniserSegmenter(tokeniser.tokenize), [piece for _, piece in pieces]))
        tables.append([*basic, *(id for id, _ in pieces)])
    offline = PretrainedModel(model.to(device).eval(), tables[0], tables[1], frame)
    return Pretrained(Path(name), recipe, languages[0], languages[1], offline)


def _load(load: Callable[..., Any], name: str) -> Any:
    """Load from a folder, else from the cache of the hub, else from the hub itself."""
    location = name.removeprefix(CHECKPOINT)
    try:
        with warnings.catch_warnings(action="ignore"):  # about parts of packages that are not used here
            try:
                return load(location, local_files_only=True)
            except OSError:
                if Path(location).is_dir():
                    raise
                return load(location)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else repr(error)
        raise UserError(f"{name}: neither a folder with a model nor available from the hub ({reason})") from None


def _frame(requested: Recipe, tokeniser: Any, model: Any) -> tuple[Recipe, Frame]:
    """The requested recipe with the languages and sizes of the model, and the special tokens around units."""
    config, codes, data = model.config, language_codes(tokeniser), requested.data
    source, target = ("" if code in ("src", "tgt") else code for code in (data.source, data.target))
    before, start = list[int](), [model.generation_config.decoder_start_token_id]
    if config.model_type == "marian":
        source, target = source or tokeniser.source_lang or "src", target or tokeniser.target_lang or "tgt"
        if codes:  # several target languages
            before = [tokeniser.convert_tokens_to_ids(codes[find_code(codes, target, "target", requested.run)])]
    else:
        if not (source and target):
            advice = "choose two, as in --source en --target de"
            raise UserError(f"{requested.run}: knows {len(codes)} languages; {advice}")
        tokeniser.src_lang = find_code(codes, source, "source", requested.run)
        start.append(tokeniser.convert_tokens_to_ids(codes[find_code(codes, target, "target", requested.run)]))
    around = tokeniser("").input_ids
    end = around.index(tokeniser.eos_token_id)
    sizes = Model(
        width=config.d_model,
        heads=config.decoder_attention_heads,
        encoder_layers=config.encoder_layers,
        decoder_layers=config.decoder_layers,
        feed_forward=config.decoder_ffn_dim,
        encoder="bidirectional",
    )
    data = replace(data, source=source, target=target, units="sentencepiece")
    recipe = replace(requested, data=data, model=sizes, objective=Objective(name="full"))
    return recipe, Frame([*before, *around[:end]], around[end:], start, tokeniser.pad_token_id)


def language_codes(tokeniser: Any) -> dict[str, str]:
    """The language codes that a tokeniser knows, and the token of each."""
    from transformers import M2M100Tokenizer, MarianTokenizer

    if isinstance(tokeniser, M2M100Tokenizer):
        return dict(tokeniser.lang_code_to_token)
    if isinstance(tokeniser, MarianTokenizer):
        return {token.strip("<>"): token for token in tokeniser.supported_language_codes}
    return {token: token for token in tokeniser.all_special_tokens if "_" in token}


def find_code(codes: Collection[str], language: str, option: str, name: str) -> str:
    """The model's code of a language: "deu_Latn" for "deu_Latn", for "deu", or for the ISO 639-1 code "de"."""
    for candidate in (language, CODES.get(language, language)):
        for code in codes:
            if code == candidate or code.startswith(f"{candidate}_"):
                return code
    shown = ", ".join(list(codes)[:8])
    raise UserError(
        f"--{option} {language[:40]}: unknown to {name}, which knows {shown}, … ({len(codes)} languages)"
    )
