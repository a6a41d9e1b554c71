"""Every setting there is, with its default and the reason for it. A recipe is a TOML file of these.

The classes are frozen and check themselves when built, so that code further on never has to.
"""

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from whilst.core.errors import UserError

Shortcut = Literal["dropout", "norms", "looks", "states", "tiles"]
SHORTCUTS: tuple[Shortcut, ...] = ("dropout", "norms", "looks", "states", "tiles")
MAX_POSITIONS = 4096  # units of a sentence, end mark counted
DEFAULT_MODEL = "en-vi"  # of live and serve; comes with the package


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise UserError(message)


@dataclass(frozen=True)
class Data:
    """Where the text comes from and how it becomes units."""

    dataset: str = "data/dataset"  # folder that `prepare` writes and `train` reads
    source: str = "src"  # language codes, for file names and for Moses
    target: str = "tgt"
    corpus: str = ""  # a corpus that whilst knows how to get: toy, iwslt15 or iwslt14; empty: the files below
    folder: str = ""  # where the files are; with a known corpus: a local copy instead of the public archive
    # Two aligned files (source, target) or one TSV, relative to folder; more pairs are joined to the first.
    train: tuple[str, ...] = ()
    valid: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    toy_pairs: int = 20_000  # training pairs of the toy corpus
    toy_seed: int = 1
    unescape: bool = False  # &apos; -> '
    moses: bool = False  # Moses tokeniser (needs the extra `moses`)
    detokenise: bool = False  # tokenised text becomes raw again, for models of raw text (needs the extra `moses`)
    tokenised: tuple[str, ...] = ()  # names or patterns of files above that Moses leaves alone
    lowercase: bool = False
    units: Literal["word", "bpe", "sentencepiece"] = "bpe"
    joint: bool = True  # one set of merges or pieces learnt on both languages
    size: int = 10_000  # BPE merges or SentencePiece pieces
    codes: str = ""  # existing subword-nmt codes instead of learning merges
    minimum_frequency: int = 1  # rarer units become <unk>; the paper's En-Vi uses 5
    max_length: int = 175  # training pairs with more units on a side are skipped and counted
    max_ratio: float = 0.0  # training pairs with a larger ratio of word counts are skipped; 0: keep all

    def __post_init__(self) -> None:
        _require(self.corpus in ("", "toy", "iwslt15", "iwslt14"), f"data.corpus: unknown corpus {self.corpus!r}")
        _require(self.size > 0, f"data.size: must be positive, not {self.size}")
        _require(self.minimum_frequency >= 1, "data.minimum_frequency: must be at least 1")
        wanted = f"data.max_length: must be from 2 to {MAX_POSITIONS - 1}"  # and an end mark
        _require(2 <= self.max_length < MAX_POSITIONS, wanted)
        _require(0 <= self.max_ratio < math.inf, f"data.max_ratio: must be 0 or more, not {self.max_ratio}")
        for name in ("train", "valid", "test"):
            files = getattr(self, name)
            good = len(files) < 2 or len(files) % 2 == 0
            _require(good, f"data.{name}: give one TSV, two aligned files or more pairs of them, not {len(files)}")


@dataclass(frozen=True)
class Model:
    """The paper's Transformer."""

    width: int = 512
    heads: int = 4
    encoder_layers: int = 6
    decoder_layers: int = 6
    feed_forward: int = 1024
    dropout: float = 0.3
    norm: Literal["pre", "post"] = "pre"
    encoder: Literal["causal", "bidirectional"] = "causal"
    # What the decoder sees of the source: all that was read, or each head what it has walked past itself (MMA).
    cross: Literal["reads", "monotone"] = "reads"

    def __post_init__(self) -> None:
        for name in ("width", "heads", "encoder_layers", "decoder_layers", "feed_forward"):
            _require(getattr(self, name) > 0, f"model.{name}: must be positive")
        _require(self.width % self.heads == 0, "model.width: must be a multiple of model.heads")
        _require(self.width % 2 == 0, "model.width: must be even")
        _require(0 <= self.dropout < 1, "model.dropout: must be in [0, 1)")


@dataclass(frozen=True)
class Objective:
    """What training minimises: the cross-entropy under these reads."""

    # search: set by the stage of that name; mma: with model.cross = "monotone"
    name: Literal["full", "wait-k", "multi-path", "search", "mma"] = "multi-path"
    k: int = 3  # for wait-k
    draw: Literal["batch", "sentence"] = "sentence"  # multi-path: a k for each batch (paper) or each pair
    longest: int = 0  # multi-path: the largest k; 0: the source's length (paper)
    whole: float = 0.0  # multi-path: share of the sentences that are read to the end first, whatever `longest` says
    label_smoothing: float = 0.1
    # Weight of R-Drop: two passes with different dropout must agree. Twice the work, and less over-fitting.
    r_drop: float = 0.0
    # Share of the loss that is the divergence from what the model itself says after the whole source: whatever was
    # not read yet, its best guess is then the average of what it would know.
    distil: float = 0.0
    latency_average: float = 0.1  # mma: weight (lambda) of the heads' average lagging, late heads counting more
    latency_variance: float = 0.0  # mma: weight of the variance between heads
    latency_rise: int = 0  # mma: updates over which both weights rise from 0 to what they are
    # mma: deviation of what is added to energies of stopping in training: only a head that is sure withstands it.
    stop_noise: float = 1.0

    def __post_init__(self) -> None:
        _require(self.k >= 1, "objective.k: must be at least 1")
        _require(self.longest >= 0, "objective.longest: must be 0 or more")
        _require(0 <= self.whole <= 1, "objective.whole: must be in [0, 1]")
        _require(0 <= self.label_smoothing < 1, "objective.label_smoothing: must be in [0, 1)")
        _require(0 <= self.r_drop < math.inf, f"objective.r_drop: must be 0 or more, not {self.r_drop}")
        _require(0 <= self.distil <= 1, "objective.distil: must be in [0, 1]")
        _require(self.latency_rise >= 0, "objective.latency_rise: must not be negative")
        for name in ("latency_average", "latency_variance", "stop_noise"):
            value = getattr(self, name)
            _require(0 <= value < math.inf, f"objective.{name}: must be 0 or more, not {value}")


@dataclass(frozen=True)
class Train:
    """The loop."""

    preset: Literal["paper", "fast"] = "fast"  # what is not set below comes from here (see optim.py)
    steps: int = 10_000
    batch_tokens: int = 8_192  # target tokens (with padding) in one micro-batch
    accumulate: int = 1  # micro-batches in one update, over all processes
    lr: float | None = None
    warmup: int | None = None
    weight_decay: float | None = None
    clip: float | None = None
    ema: float = 0.999  # decay of the averaged weights that are validated and kept; 0: off
    average: int = 0  # mean of the last n validated weights, tried at the end; 0: off
    validate_every: int = 500
    validate_k: int = 0  # wait-k of the validation BLEU; 0: the whole source is read first
    validate_bleu: bool = True
    keep: Literal["bleu", "loss"] = "bleu"  # which validation figure chooses the best checkpoint
    patience: int = 0  # stop after so many validations without a better one; 0: never
    save_every: int = 500
    log_every: int = 50
    seed: int = 1  # that of [train] is also that of search and agent, unless they name their own
    # auto: packed on a GPU (mma: boxed, which is padded to few shapes), padded elsewhere
    layout: Literal["auto", "padded", "boxed", "packed"] = "auto"
    compile: bool = True  # GPU only
    # GPU only; the same but for rounding and chance. Dropout by 16 random bits drawn ahead; norms that leave
    # gain and bias to the next layer; what agents look at recorded on packed batches; states in 16 bits where
    # reads are searched, as they are in training (chances then differ by 0.0007 from exact ones, in place of
    # 0.0003); attention in tiles of 64 tokens in place of 128.
    shortcuts: tuple[Shortcut, ...] = SHORTCUTS
    tensorboard: bool = True

    def __post_init__(self) -> None:
        for name in ("steps", "batch_tokens", "accumulate", "validate_every", "save_every", "log_every"):
            _require(getattr(self, name) >= 1, f"train.{name}: must be at least 1")
        for name in ("lr", "warmup", "weight_decay", "clip"):
            value = getattr(self, name)
            _require(value is None or 0 <= value < math.inf, f"train.{name}: must be 0 or more, not {value}")
        for name in ("average", "validate_k", "patience"):
            _require(getattr(self, name) >= 0, f"train.{name}: must not be negative")
        _require(0 <= self.seed < 1 << 63, "train.seed: must be in [0, 2^63)")  # what torch takes
        _require(0 <= self.ema < 1, "train.ema: must be in [0, 1)")
        _require(self.validate_bleu or self.keep == "loss", 'train.keep: "bleu" needs train.validate_bleu')


@dataclass(frozen=True)
class Search:
    """Fine-tuning on the reads that binary search finds (BS-SiMT)."""

    intervals: tuple[tuple[int, ...], ...] = ((1, 5), (3, 7), (5, 9), (7, 11), (9, 13))  # [l_1, r_1]
    slope: Literal["one", "ratio"] = "ratio"  # how intervals shift: by 1 (the paper's text) or J/I (its code)
    condition: Literal["concavity", "authors", "ground-truth"] = "concavity"
    # Whose chance is searched: the reference token's (paper), or what the model says after the whole source.
    target: Literal["reference", "belief"] = "reference"
    tolerance: float = 0.0  # a gain in chance that is not worth waiting for; 0: the paper
    multi_path: float = 0.0  # share of the sentences that stay under multi-path
    objective: Objective = field(default_factory=lambda: Objective(name="search"))
    train: Train = field(
        default_factory=lambda: Train(steps=2_000, lr=2e-4, warmup=100, validate_bleu=False, keep="loss")
    )

    def __post_init__(self) -> None:
        _require(bool(self.intervals), "search.intervals: give at least one, such as [[1, 5]]")
        for interval in self.intervals:
            good = len(interval) == 2 and 0 <= interval[0] <= interval[1] and interval[1] > 0
            _require(good, f"search.intervals: {list(interval)} must be [first, last] with 0 <= first <= last")
        sizes = {last - first for first, last in self.intervals}
        _require(len(sizes) == 1, "search.intervals: all must have the same length, one table serves them")
        _require(len(set(self.intervals)) == len(self.intervals), "search.intervals: one of them is there twice")
        _require(0 <= self.multi_path < 1, "search.multi_path: must be in [0, 1)")
        _require(0 <= self.tolerance < 1, "search.tolerance: must be in [0, 1)")
        _require(self.objective.name == "search", 'search.objective.name: is always "search"')

    @property
    def deciding(self) -> dict[str, Any]:
        """The settings that decide which reads it finds."""
        return {name: getattr(self, name) for name in ("intervals", "slope", "condition", "target", "tolerance")}

    @property
    def size(self) -> int:
        """How many reads each interval tries."""
        first, last = self.intervals[0]
        return last - first + 1


@dataclass(frozen=True)
class Agent:
    """The agent that learns the searched reads, or those of the translation-based policy."""

    kind: Literal["lstm", "gru", "linear"] = "lstm"
    hidden: int = 512
    # What it sees: the last tokens (paper), the model's states of them too, or also the state that would write now.
    inputs: Literal["embeddings", "states", "ahead"] = "states"
    reference: Literal["translation", "ground-truth"] = "translation"  # whose words it sees in training
    # What it learns: searched reads, or those with which prefixes are translated as the whole source is.
    labels: Literal["search", "translation"] = "search"
    # Of such translations: each token once, all from then on, or each within the one interval of the search.
    agreement: Literal["token", "lasting", "within"] = "lasting"
    stray: float = 0.0  # share of the sentences on which it is taught along the reads of some other interval
    dropout: float = 0.1
    label_smoothing: float = 0.1
    train: Train = field(
        default_factory=lambda: Train(steps=2_000, lr=1e-3, warmup=100, validate_bleu=False, keep="loss")
    )

    def __post_init__(self) -> None:
        _require(self.hidden > 0, "agent.hidden: must be positive")
        _require(0 <= self.stray <= 1, "agent.stray: must be in [0, 1]")
        _require(0 <= self.dropout < 1, "agent.dropout: must be in [0, 1)")
        _require(0 <= self.label_smoothing < 1, "agent.label_smoothing: must be in [0, 1)")

    @property
    def bounded(self) -> bool:
        """Whether it is a translation-based one whose labels lie in a search interval."""
        return self.labels == "translation" and self.agreement == "within"


@dataclass(frozen=True)
class Limits:
    """A translation ends at `ratio` times the source length plus `extra` units if it does not end by itself."""

    ratio: float = 2.0
    extra: int = 20

    def of(self, source_length: int) -> int:
        return max(1, int(self.ratio * source_length) + self.extra)


@dataclass(frozen=True)
class Evaluate:
    """What `evaluate` decodes and how."""

    split: str = "test"
    policies: tuple[str, ...] = ("wait-1", "wait-3", "wait-5", "wait-7", "wait-9")
    threshold: float = 0.5  # the agent WRITEs at this probability or above
    batch: int = 256  # sentences decoded together
    beam: int = 1  # full-sentence only
    precision: Literal["single", "half"] = "single"  # of all numbers of model and agent; half: on GPUs, for speed
    # Words outside of the target vocabulary. keep: write <unk>. copy: write the first word that was read, was not
    # used so yet, and is outside of the source vocabulary; nothing where there is none.
    unknown: Literal["keep", "copy"] = "copy"
    # Where a model says, before the whole source was read, that all is said. free: end there, as in the paper.
    # patient: READ on instead.
    ending: Literal["free", "patient"] = "free"
    max_ratio: float = 2.0  # a translation is cut at max_ratio * source length + max_extra units
    max_extra: int = 20

    def __post_init__(self) -> None:
        _require(self.batch >= 1, "evaluate.batch: must be at least 1")
        _require(bool(self.policies), "evaluate.policies: name at least one, such as wait-3")
        _require(0 <= self.threshold <= 1, "evaluate.threshold: must be in [0, 1]")
        _require(self.beam >= 1, "evaluate.beam: must be at least 1")
        _require(0 <= self.max_ratio <= 1e6, f"evaluate.max_ratio: must be 0 to a million, not {self.max_ratio}")
        _require(self.max_extra >= 1, "evaluate.max_extra: must be at least 1, or nothing may be written")

    @property
    def copies(self) -> bool:
        return self.unknown == "copy"

    @property
    def limits(self) -> Limits:
        return Limits(self.max_ratio, self.max_extra)


@dataclass(frozen=True)
class Recipe:
    """One experiment, whole."""

    run: str = "runs/run"  # folder of the trained model
    start: str = ""  # run folder whose weights training begins with; empty: random weights
    teacher: str = ""  # run folder whose translations of the training text are learnt beside the references
    # What `train` does, in this order.
    stages: tuple[Literal["translate", "search", "agent", "evaluate"], ...] = ("translate",)
    data: Data = field(default_factory=Data)
    model: Model = field(default_factory=Model)
    objective: Objective = field(default_factory=Objective)
    train: Train = field(default_factory=Train)
    search: Search = field(default_factory=Search)
    agent: Agent = field(default_factory=Agent)
    evaluate: Evaluate = field(default_factory=Evaluate)

    def __post_init__(self) -> None:
        _require(
            self.model.encoder == "causal" or self.objective.name == "full",
            'model.encoder: "bidirectional" sees the whole source, so it needs objective.name = "full"',
        )
        order = [name for name in ("translate", "search", "agent", "evaluate") if name in self.stages]
        in_order = bool(order) and list(self.stages) == order
        _require(in_order, "stages: some of translate, search, agent, evaluate, in this order")
        if self.agent.bounded:
            one = len(self.search.intervals) == 1
            _require(one, 'search.intervals: give one, as in [[3, 11]]; agent.agreement = "within" has one policy')
        if self.model.cross == "monotone":
            self._check_monotone()
        else:
            _require(self.objective.name != "mma", 'objective.name: "mma" needs model.cross = "monotone"')

    def _check_monotone(self) -> None:
        _require(self.objective.name == "mma", 'model.cross: "monotone" heads need objective.name = "mma"')
        learnt = {"search", "agent"} & set(self.stages)
        _require(not learnt, 'stages: no "search" and no "agent" with model.cross = "monotone", whose heads decide')
        _require(
            self.train.layout != "packed",
            'train.layout: model.cross = "monotone" needs padded batches, since a walk has a grid of its own',
        )

    @property
    def latencies(self) -> int:
        """How many latencies one agent serves: an interval each, or the one of the translation-based policy."""
        return len(self.search.intervals) if self.agent.labels == "search" else 1
