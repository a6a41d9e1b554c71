"""All settings of a recipe, which is a TOML file, with their defaults.

A setting is annotated with its type, a `Check` of its value, which config.py applies, and a `Role`, which says how
other code treats the setting. Requirements between settings are checked by `__post_init__`.
"""

import dataclasses
import enum
import math
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

from whilst.core.errors import UserError

MAX_POSITIONS = 4096  # units of a sentence, end mark counted
# Steps from the paper's system to ours, each with one more change (recipes/paper/ladder.toml), and "authors", the
# system of the authors' code.
Rung = Literal[
    "", "paper", "authors", "shared", "slope", "target", "tolerance", "inputs", "not-fine-tuned", "copying", "draw",
    "schedule", "longest", "whole",
]  # fmt: skip
MAX_WEIGHTS = 20e9  # far more than bilingual text can train
CORPORA = "", "toy", "iwslt15", "iwslt14"
CHECKPOINT = "hf:"  # prefix of the names of pretrained models
DEFAULT_MODEL = "en-vi"  # of live and serve; a model of the package


class Role(enum.Flag):
    """How other code treats a setting. Settings without a role, and those with READS or POINT, affect results."""

    NONE = 0
    PLACE = enum.auto()  # a path; the content of files is compared by checksum
    ORIGIN = enum.auto()  # path of another run, which differs between seeds; only whether it is empty is compared
    PLAN = enum.auto()  # which stages and policies are run
    SEED = enum.auto()
    SPEED = enum.auto()  # changes results by no more than rounding
    MONITOR = enum.auto()  # how often progress is logged and saved
    RESUME = enum.auto()  # may differ when training is resumed
    FIXED = enum.auto()  # may not be overridden after training
    CLEANING = enum.auto()  # decides how a line of text is cleaned
    READS = enum.auto()  # decides which reads the search finds
    POINT = enum.auto()  # differs between the models that are points of one curve
    START = enum.auto()  # as in the run `start`, unless the recipe sets it
    LIKE = enum.auto()  # as in the run `data.like`, unless the recipe sets it


NEUTRAL = Role.PLACE | Role.PLAN | Role.SPEED | Role.MONITOR  # these do not affect results


class Check(NamedTuple):
    """A condition on the value of a setting."""

    what: str  # what the value must be, for messages
    holds: Callable[[Any], bool]


FILES = Check("one TSV, or pairs of aligned files", lambda files: len(files) < 2 or len(files) % 2 == 0)
APART = Check(
    'lists of a name, a pattern or "", and pairs of files',
    lambda texts: all(len(text) > 3 and len(text) % 2 == 0 and text[0].isidentifier() for text in texts),
)
SIDES = Check("one file, or two: source and target", lambda files: len(files) <= 2)
TWO = Check("two names: source and target", lambda names: len(names) in (0, 2))
LOGGER = Check('"tensorboard" or MODULE:FUNCTION', lambda name: name in ("", "tensorboard") or ":" in name)
NOT_EMPTY = Check("at least one, such as wait-3", bool)
NOT_NEGATIVE = Check("0 or more", lambda value: 0 <= value < math.inf)
Count = Annotated[int, Check("at least 1", lambda value: value >= 1)]
Natural = Annotated[int, NOT_NEGATIVE]
Weight = Annotated[float, NOT_NEGATIVE]
Share = Annotated[float, Check("in [0, 1]", lambda value: 0 <= value <= 1)]
Fraction = Annotated[float, Check("in [0, 1)", lambda value: 0 <= value < 1)]


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise UserError(message)


@dataclass(frozen=True)
class Data:
    """Where the text comes from and how it is split into units."""

    dataset: Annotated[str, Role.PLACE] = "data/dataset"  # folder that `prepare` writes and `train` reads
    # Run folder whose units and vocabularies the dataset gets, for models that start from that run.
    like: Annotated[str, Role.PLACE | Role.RESUME] = ""
    source: Annotated[str, Role.LIKE] = "src"  # language codes, used in file names and by Moses
    target: Annotated[str, Role.LIKE] = "tgt"  # as `source`
    # A known corpus: toy, iwslt15 or iwslt14; empty: the files below.
    corpus: Annotated[str, Check("toy, iwslt15 or iwslt14", lambda name: name in CORPORA)] = ""
    # Folder of the files; with a known corpus, a local copy that is read instead of the public archive.
    folder: Annotated[str, Role.PLACE | Role.RESUME] = ""
    # Data set of the Hugging Face hub, or a folder in its format, instead of files (needs the extra `hub`).
    # `train`, `valid` and `test` are then each the name of a split; empty: train, validation and test.
    hub: Annotated[str, Role.PLACE | Role.RESUME] = ""
    hub_configuration: Annotated[str, Role.PLACE | Role.RESUME] = ""  # configuration of the data set, e.g. de-en
    # Columns of that data set with source and target; empty: translation.SOURCE and translation.TARGET.
    hub_columns: Annotated[tuple[str, ...], TWO, Role.PLACE | Role.RESUME] = ()
    # Two aligned files (source, target) or one TSV, relative to `folder`; further pairs are appended.
    train: Annotated[tuple[str, ...], FILES, Role.PLACE | Role.RESUME] = ()
    valid: Annotated[tuple[str, ...], FILES, Role.PLACE | Role.RESUME] = ()  # as `train`
    test: Annotated[tuple[str, ...], FILES, Role.PLACE | Role.RESUME] = ()  # as `train`
    # Pairs that are taken evenly from `train` for `valid`, and as many for `test`, where these name no files.
    held_out: Natural = 0
    # Further test sets, each a list: name, regular expression that a side of a pair must match ("": any), pairs of
    # files. For each, `apart_pairs` pairs are chosen by checksum; no training pair has a side in common with them.
    apart: Annotated[tuple[tuple[str, ...], ...], APART] = ()
    apart_pairs: Count = 1_000  # number of pairs of each test set in `apart`
    toy_pairs: int = 20_000  # training pairs of the toy corpus
    toy_seed: int = 1  # random seed of the toy corpus
    unescape: Annotated[bool, Role.CLEANING | Role.LIKE] = False  # replace HTML entities: &apos; -> '
    moses: Annotated[bool, Role.CLEANING | Role.LIKE] = False  # tokenise with Moses (needs the extra `moses`)
    # Convert tokenised text to raw text, for models of raw text (needs the extra `moses`).
    detokenise: Annotated[bool, Role.CLEANING] = False
    # Names or patterns of files above that are tokenised already. `moses` skips these files; `detokenise` applies
    # to them only, or to all files if none is named.
    tokenised: Annotated[tuple[str, ...], Role.CLEANING] = ()
    lowercase: Annotated[bool, Role.CLEANING | Role.LIKE] = False  # lower-case the text
    # Kind of unit that the vocabulary consists of.
    units: Annotated[Literal["word", "bpe", "sentencepiece"], Role.LIKE] = "bpe"
    joint: Annotated[bool, Role.LIKE] = True  # learn one set of merges or pieces on both languages
    # BPE merges or SentencePiece pieces to learn.
    size: Annotated[int, Check("from 1 to a million", lambda size: 1 <= size <= 1e6), Role.LIKE] = 10_000
    # Codes of subword-nmt or fastBPE, or models of SentencePiece, used instead of learning: one file for both
    # languages, or one each; relative to `folder`.
    segmentation: Annotated[tuple[str, ...], SIDES, Role.PLACE | Role.RESUME] = ()
    # Files with a unit at the start of each line, as subword-nmt, SentencePiece and fairseq write them: one for
    # both languages, or one each. Empty: the pieces of the given models, or else the units of the training text.
    vocabulary: Annotated[tuple[str, ...], SIDES, Role.PLACE | Role.RESUME] = ()
    # Rarer units become <unk>, unless the vocabulary is given; the paper's En-Vi uses 5.
    minimum_frequency: Annotated[Count, Role.LIKE] = 1
    # Training pairs with more units on either side are skipped.
    max_length: Annotated[int, Check("from 2 to 4095", lambda length: 2 <= length < MAX_POSITIONS)] = 175
    max_ratio: Weight = 0.0  # training pairs with a larger ratio of word counts are skipped; 0: no limit


@dataclass(frozen=True)
class Model:
    """The paper's Transformer."""

    width: Count = 512  # width of embeddings and hidden states
    heads: Count = 4  # number of heads of every attention
    encoder_layers: Count = 6  # number of layers
    decoder_layers: Count = 6  # number of layers
    feed_forward: Count = 1024  # width inside the feed-forward layers
    dropout: Fraction = 0.3  # share of the values that are dropped in training
    norm: Literal["pre", "post"] = "pre"  # layer normalisation before or after each sub-layer
    # causal: a token attends to itself and the tokens before it. bidirectional: a token attends to all tokens, for
    # full-sentence models only.
    encoder: Literal["causal", "bidirectional"] = "causal"
    # reads: cross-attention sees all source tokens read so far. monotone: each head has its own reads (MMA).
    cross: Literal["reads", "monotone"] = "reads"

    def __post_init__(self) -> None:
        _require(self.width % self.heads == 0, "model.width: must be a multiple of model.heads")
        _require(self.width % 2 == 0, "model.width: must be even")
        layers = self.encoder_layers + self.decoder_layers
        weights = layers * self.width * (6 * self.width + 2 * self.feed_forward)
        _require(
            weights <= MAX_WEIGHTS,
            f"model: {layers} layers of width {self.width}: {weights / 1e9:,.0f} billion weights; choose less",
        )


@dataclass(frozen=True)
class Objective:
    """The loss: cross-entropy under the reads of a policy."""

    # "search" is set by the stage of that name; "mma" needs model.cross = "monotone".
    name: Literal["full", "wait-k", "multi-path", "search", "mma"] = "multi-path"
    k: Annotated[Count, Role.POINT] = 3  # for wait-k
    draw: Literal["batch", "sentence"] = "sentence"  # multi-path: one k per batch (paper) or per sentence
    longest: Natural = 0  # multi-path: the largest k; 0: the source length (paper)
    whole: Share = 0.0  # multi-path: share of sentences whose whole source is read first, regardless of `longest`
    label_smoothing: Fraction = 0.1  # weight of the uniform distribution
    # Weight of R-Drop, the divergence between two passes with different dropout. Doubles the cost of an update.
    r_drop: Weight = 0.0
    # Share of the loss that is the divergence from the model's own prediction given the whole source.
    distil: Share = 0.0
    # mma: weight (lambda) of the average lagging of the heads; late heads weigh more.
    latency_average: Annotated[Weight, Role.POINT] = 0.1
    latency_rise: Natural = 0  # mma: updates over which `latency_average` rises linearly from 0
    stop_noise: Weight = 1.0  # mma: standard deviation of the noise added to the stopping energies in training


@dataclass(frozen=True)
class Train:
    """The training loop."""

    preset: Literal["paper", "fast"] = "fast"  # values of the optional settings below (see optim.py)
    steps: Annotated[Count, Role.RESUME] = 10_000  # number of updates
    batch_tokens: Count = 8_192  # target tokens (with padding) in one micro-batch
    accumulate: Count = 1  # micro-batches in one update, over all processes
    lr: Annotated[float | None, NOT_NEGATIVE] = None  # highest learning rate
    warmup: Annotated[int | None, NOT_NEGATIVE] = None  # updates until the learning rate is highest
    weight_decay: Annotated[float | None, NOT_NEGATIVE] = None  # weight decay, decoupled from the gradient
    clip: Annotated[float | None, NOT_NEGATIVE] = None  # largest gradient norm; 0: off
    ema: Fraction = 0.999  # decay of the averaged weights that are validated and saved; 0: off
    validate_every: Annotated[Count, Role.RESUME] = 500  # updates between validations
    validate_k: Annotated[Natural, Role.POINT] = 0  # k of the wait-k policy of the validation; 0: full sentence
    validate_bleu: bool = True  # translate the validation set too
    keep: Annotated[Literal["bleu", "loss"], Role.RESUME] = "bleu"  # validation score that selects the checkpoint
    patience: Annotated[Natural, Role.RESUME] = 0  # stop after n validations without improvement; 0: never
    save_every: Annotated[Count, Role.MONITOR | Role.RESUME] = 500  # updates between checkpoints
    log_every: Annotated[Count, Role.MONITOR | Role.RESUME] = 50  # updates between lines of the log
    # Random seed, also of the later stages unless [search.train] or [agent.train] has its own.
    seed: Annotated[int, Role.SEED, Check("in [0, 2^63)", lambda seed: 0 <= seed < 1 << 63)] = 1
    # padded: one sentence per row. boxed: padded to one of a few shapes. packed: sentences end to end.
    # auto: padded on a CPU; on a GPU boxed for mma, otherwise packed.
    layout: Annotated[Literal["auto", "padded", "boxed", "packed"], Role.SPEED] = "auto"
    compile: Annotated[bool, Role.SPEED] = True  # compiled layers and CUDA graphs; GPU only

    def __post_init__(self) -> None:
        _require(self.validate_bleu or self.keep == "loss", 'train.keep: "bleu" needs train.validate_bleu')


@dataclass(frozen=True)
class Search:
    """The binary search for reads (BS-SiMT): for labels and oracles, and in the stage "search" for fine-tuning."""

    # The interval [l_1, r_1] of the first target token, one for each latency.
    intervals: Annotated[tuple[tuple[int, ...], ...], Role.READS] = ((1, 5), (3, 7), (5, 9), (7, 11), (9, 13))
    # How far an interval shifts per target token. one: by 1 (the paper's text). ratio: by J/I (the authors' code).
    slope: Annotated[Literal["one", "ratio"], Role.READS] = "ratio"
    # When the search continues in the left half. concavity: this half gains at least as much probability as the
    # right half (paper). authors: as in the authors' code. ground-truth: the reference token is the most probable.
    condition: Annotated[Literal["concavity", "authors", "ground-truth"], Role.READS] = "concavity"
    # What the search compares. reference: the probability of the reference token (paper). belief: the agreement
    # with the model's own prediction given the whole source.
    target: Annotated[Literal["reference", "belief"], Role.READS] = "reference"
    # A gain in probability up to this value does not justify more reads; the paper has 0.
    tolerance: Annotated[Fraction, Role.READS] = 0.0
    multi_path: Fraction = 0.0  # share of sentences trained with multi-path reads
    objective: Objective = Objective(name="search")
    train: Train = Train(steps=2_000, lr=2e-4, warmup=100, validate_bleu=False, keep="loss")

    def __post_init__(self) -> None:
        _require(bool(self.intervals), "search.intervals: give at least one, such as [[1, 5]]")
        for interval in self.intervals:
            valid = len(interval) == 2 and 0 <= interval[0] <= interval[1] and interval[1] > 0
            _require(valid, f"search.intervals: {list(interval)} must be [first, last] with 0 <= first <= last")
        sizes = {last - first for first, last in self.intervals}
        _require(len(sizes) == 1, "search.intervals: all must have the same length")
        _require(len(set(self.intervals)) == len(self.intervals), "search.intervals: an interval is repeated")
        _require(self.objective.name == "search", 'search.objective.name: is always "search"')

    @property
    def size(self) -> int:
        """Number of offsets in an interval."""
        first, last = self.intervals[0]
        return last - first + 1


@dataclass(frozen=True)
class Agent:
    """The agent that learns searched reads, or those of the translation-based policy."""

    kind: Literal["lstm", "gru", "linear"] = "lstm"  # type of the agent's layer
    hidden: Count = 512  # width of the agent's layer
    # embeddings: those of the last tokens (paper). states: the model's states of these tokens too. lookahead: the
    # lookahead state too.
    inputs: Literal["embeddings", "states", "lookahead"] = "states"
    # The last token written, as the agent sees it in training. translation: the model's most likely token at each
    # position after the reference's tokens. ground-truth: the reference's token.
    reference: Literal["translation", "ground-truth"] = "translation"
    # Reads that the agent learns. search: searched reads. translation: the fewest reads after which the model
    # writes the same token as in its translation of the whole source.
    labels: Literal["search", "translation"] = "search"
    # With labels = "translation". token: any number of reads. within: reads in the one search interval.
    agreement: Literal["token", "within"] = "token"
    # With labels = "translation": run folder of the full-sentence model that translates the prefixes, each as a
    # sentence of its own (paper); empty: the translator itself.
    labeller: Annotated[str, Role.ORIGIN] = ""
    # Training pairs that the agent learns from, evenly spread; 0: all. Finding their reads takes long on a CPU.
    pairs: Natural = 0
    dropout: Fraction = 0.1  # share of the values that are dropped in training
    label_smoothing: Fraction = 0.1  # weight of the uniform distribution
    train: Train = Train(steps=2_000, lr=1e-3, warmup=100, validate_bleu=False, keep="loss")

    def __post_init__(self) -> None:
        free = self.labels == "translation" and self.agreement == "token"
        _require(free or not self.labeller, 'agent.labeller: needs labels = "translation" and agreement = "token"')

    @property
    def bounded(self) -> bool:
        """Whether the labels are translation-based and within a search interval."""
        return self.labels == "translation" and self.agreement == "within"


@dataclass(frozen=True)
class Limits:
    """A translation is cut at `ratio` times the source length plus `extra` units."""

    ratio: float = 2.0
    extra: int = 20

    def of(self, source_length: int) -> int:
        return max(1, int(self.ratio * source_length) + self.extra)


@dataclass(frozen=True)
class Evaluate:
    """What is decoded in an evaluation, and how."""

    split: str = "test"  # which split: test, valid or a name in data.apart
    # Names of policies.
    policies: Annotated[tuple[str, ...], Role.PLAN, NOT_EMPTY] = ("wait-1", "wait-3", "wait-5", "wait-7", "wait-9")
    threshold: Share = 0.5  # the agent WRITEs at this probability or above
    batch: Annotated[Count, Role.SPEED] = 256  # sentences decoded together
    precision: Literal["single", "half"] = "single"  # of model and agent; half: GPU only
    # Unknown target words. keep: write <unk>. copy: write the first unknown source word that was read and not
    # copied yet; nothing if there is none.
    unknown: Literal["keep", "copy"] = "copy"
    # When the model writes the end mark before the whole source is read. free: end there, as in the paper.
    # patient: READ instead.
    ending: Literal["free", "patient"] = "free"
    # repeats: no phrase of one to four words is repeated in a row more often than any phrase of the source read so
    # far. literals: numbers, addresses, code, emoji and words of unknown scripts are copied unchanged.
    guards: tuple[Literal["repeats", "literals"], ...] = ()
    # TSV file of terms: source, tab, translation; without a translation a term stays as it is. Empty: none.
    glossary: str = ""
    # A translation is cut at max_ratio * source length + max_extra units.
    max_ratio: Annotated[float, Check("from 0 to a million", lambda ratio: 0 <= ratio <= 1e6)] = 2.0
    max_extra: Count = 20  # see `max_ratio`

    @property
    def limits(self) -> Limits:
        return Limits(self.max_ratio, self.max_extra)


@dataclass(frozen=True)
class Recipe:
    """One experiment."""

    run: Annotated[str, Role.PLACE | Role.RESUME] = "runs/run"  # folder of the trained model
    # Path of the recipe file; filled in when the file is read.
    file: Annotated[str, Role.PLACE | Role.RESUME] = field(default="", compare=False)
    # Run folder with the initial weights; empty: random weights.
    start: Annotated[str, Role.ORIGIN | Role.RESUME] = ""
    # Run folder of a model whose translations of the training text are added to the references.
    teacher: Annotated[str, Role.ORIGIN] = ""
    # System that the recipe trains. paper: as in the paper's text. authors: as in the authors' code. empty: ours.
    # The others are the steps from the paper's system to ours (recipes/paper/ladder.toml).
    rung: Annotated[Rung, Role.PLAN | Role.RESUME] = ""
    # What `train` does, in this order.
    stages: Annotated[tuple[Literal["translate", "search", "agent", "evaluate"], ...], Role.PLAN | Role.RESUME] = (
        "translate",
    )
    # Where training logs its figures, in addition to history.jsonl: "tensorboard" (in the run folder), or your own
    # MODULE:FUNCTION. Empty: nowhere.
    logger: Annotated[str, LOGGER, Role.MONITOR | Role.RESUME] = ""
    data: Data = Data()
    model: Annotated[Model, Role.FIXED | Role.START] = Model()
    objective: Annotated[Objective, Role.FIXED] = Objective()
    train: Annotated[Train, Role.FIXED] = Train()
    search: Search = Search()
    agent: Annotated[Agent, Role.FIXED] = Agent()
    evaluate: Annotated[Evaluate, Role.RESUME] = Evaluate()

    def __post_init__(self) -> None:
        _require(
            self.model.encoder == "causal" or self.objective.name == "full",
            'model.encoder: "bidirectional" needs objective.name = "full"',
        )
        order = [name for name in ("translate", "search", "agent", "evaluate") if name in self.stages]
        in_order = bool(order) and list(self.stages) == order
        _require(in_order, "stages: must be some of translate, search, agent, evaluate, in this order")
        if self.agent.bounded:
            one = len(self.search.intervals) == 1
            _require(one, 'search.intervals: give one, as in [[3, 11]], with agent.agreement = "within"')
        monotone, mma = self.model.cross == "monotone", self.objective.name == "mma"
        _require(monotone or not mma, 'objective.name: "mma" needs model.cross = "monotone"')
        _require(mma or not monotone, 'model.cross: "monotone" heads need objective.name = "mma"')
        learnt = {"search", "agent"} & set(self.stages)
        _require(not (mma and learnt), 'stages: model.cross = "monotone" has no "search" and no "agent" stage')
        self._check_rung()
        packed = self.train.layout == "packed"
        _require(not (mma and packed), 'train.layout: model.cross = "monotone" needs padded batches')

    def _check_rung(self) -> None:
        """Check that the rungs "paper" and "authors" have the settings of these systems."""
        if self.rung not in ("paper", "authors"):
            return
        search, agent, objective = self.search, self.agent, self.objective
        holds = not self.teacher
        if "translate" in self.stages:
            drawn = objective.draw, objective.longest, objective.whole, objective.r_drop, self.train.preset
            holds &= drawn == ("batch", 0, 0.0, 0.0, "paper")
        if "search" in self.stages:
            searched = search.slope, search.condition, search.target, search.tolerance, search.multi_path
            learnt = agent.kind, agent.inputs, agent.reference
            expected = ("one", "concavity") if self.rung == "paper" else ("ratio", "authors")
            holds &= searched == (*expected, "reference", 0.0, 0.0) and len(search.intervals) == 1
            holds &= learnt == ("lstm", "embeddings", "translation")
        _require(holds, f'rung: "{self.rung}" is for the settings of recipes/paper; leave it out for others')

    @property
    def checkpoint(self) -> str:
        """The name of the pretrained model on the Hugging Face hub; empty for a run folder."""
        return self.run.removeprefix(CHECKPOINT) if self.run.startswith(CHECKPOINT) else ""

    @property
    def latencies(self) -> int:
        """Number of latencies of the agent: one per interval, or one if it is translation-based."""
        return len(self.search.intervals) if self.agent.labels == "search" else 1


# Settings that no longer exist -> the values that old files may still have, since they do not affect results;
# None: any value.
RETIRED: dict[tuple[type, str], tuple[object, ...] | None] = {
    (Data, "codes"): ("",),
    (Objective, "latency_variance"): (0.0,),
    (Train, "average"): (0,),
    (Train, "shortcuts"): None,  # all are always used now
    (Train, "tensorboard"): (True, False),  # replaced by logger = "tensorboard"
    (Agent, "stray"): (0.0,),
    (Evaluate, "beam"): (1,),
}
RENAMED = {"ahead": "lookahead"}  # value of a setting in old files -> value today


def roles(kind: Any = Recipe) -> dict[str, Role]:
    """Dotted name -> role of each setting; includes the role of its section."""
    result: dict[str, Role] = {}
    for name, hint in typing.get_type_hints(kind, include_extras=True).items():
        role = next((item for item in getattr(hint, "__metadata__", ()) if isinstance(item, Role)), Role.NONE)
        section = getattr(hint, "__origin__", hint)
        if dataclasses.is_dataclass(section):
            result |= {f"{name}.{inner}": role | inner_role for inner, inner_role in roles(section).items()}
        else:
            result[name] = role
    return result


def names_with(role: Role, kind: type = Recipe) -> frozenset[str]:
    """Dotted names of the settings that have any of these roles."""
    return frozenset(name for name, setting_role in roles(kind).items() if setting_role & role)
