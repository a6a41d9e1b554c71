"""The tasks of the training stages: the translator under given reads, and the agent, which learns reads.

A task owns the module that is trained, draws the random values of a batch, computes the loss, and validates.
"""

import abc
import copy
import functools
import hashlib
import json
import math
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from whilst.core.config import read_recipe, to_table, values_with
from whilst.core.errors import UserError
from whilst.core.files import sha256_lines
from whilst.core.settings import Recipe, Role, Search
from whilst.data.batches import Batch, Layout, batches_by_length
from whilst.data.dataset import Dataset, Split
from whilst.decoding.batched import translate
from whilst.evaluation.metrics import paper_bleu
from whilst.model import agent as agents
from whilst.model.agent import Action, Agent, PathStates, observe
from whilst.model.checkpoint import load_tensors, load_translator, load_weights, read_weights, save_tensors
from whilst.model.monotonic_attention import MonotonicPass, use_triton_kernels, weights_from_soft_attention
from whilst.model.run_folder import weights_checksum, weights_path
from whilst.model.transformer import Translator, decode_batch
from whilst.policy.fixed import Full, WaitK
from whilst.policy.learnt import Monotonic
from whilst.search.labels import (
    Labels,
    bounded_agreement,
    find_agreement_labels,
    find_labels,
    find_labels_packed,
    worth_packing,
)
from whilst.search.packed_search import ScoreQueries, score_queries
from whilst.training import losses
from whilst.training.captured import (
    CapturedObserver,
    CapturedSearch,
    Observer,
    captured_label_search,
    compile_translator,
)
from whilst.training.distil import cached_translations, with_teacher
from whilst.training.sampling import Searcher, draw_intervals, draw_reads, search_sentences

LABEL_CACHE_VERSION = 2  # bump when search finds other reads than before


@dataclass(frozen=True)
class Validation:
    loss: float  # per token or decision, without label smoothing
    bleu: float | None = None
    figures: dict[str, float] = field(default_factory=dict)  # other measurements, by name

    def better(self, other: "Validation | None", keep: str) -> bool:
        """Whether this is better than `other` by the setting `train.keep`; a loss of NaN is worst."""
        if other is None:
            return True
        if math.isnan(self.loss) or math.isnan(other.loss):
            return not math.isnan(self.loss)
        if keep == "bleu" and self.bleu is not None and other.bleu is not None and self.bleu != other.bleu:
            return self.bleu > other.bleu
        return self.loss < other.loss


class Task(abc.ABC):
    module: nn.Module  # the module that is trained
    dataset: Dataset
    gpu_layout: Layout  # the fastest layout on a GPU
    bf16_on_cpu = False  # whether training in bfloat16 is faster on CPUs that have instructions for it
    device: torch.device

    @abc.abstractmethod
    def compile(self) -> None:
        """Compile what the task computes on a GPU."""

    def begin(self) -> None:  # noqa: B027  (nothing, in most tasks)
        """Do slow work before the first update. Its time does not count as training."""

    def set_step(self, step: int) -> None:  # noqa: B027
        """Set the values that depend on the number of updates done. Runs outside of captured graphs."""

    @abc.abstractmethod
    def draw(self, batch: Batch, random: torch.Generator) -> Tensor:
        """The random values of a batch, or searched reads, for `loss`. Runs outside of captured graphs."""

    @abc.abstractmethod
    def loss(self, batch: Batch, drawn: Tensor) -> Tensor:
        """The summed loss. For packed batches, it must be computed with fixed shapes."""

    @abc.abstractmethod
    def validate(self, module: nn.Module) -> Validation:
        """Evaluate these weights on the development set."""


@dataclass(eq=False)
class TranslatorTask(Task):
    """Trains the translator under the reads of a rule, under reads that it finds by search, or with MMA."""

    recipe: Recipe
    dataset: Dataset
    module: Translator
    device: torch.device

    def __post_init__(self) -> None:
        self.gpu_layout = "boxed" if self.recipe.model.cross == "monotone" else "packed"
        self.bf16_on_cpu = self.recipe.model.cross == "reads"
        self.cross_entropy, self.r_drop, self.divergence = losses.cross_entropy, losses.r_drop, losses.divergence
        self.searcher: Searcher = search_sentences
        self.latency_scale = torch.ones((), device=self.device)  # factor of the latency loss; rises with the steps

    def compile(self) -> None:
        if self.gpu_layout == "boxed":
            use_triton_kernels(self.module)
            return  # every shape would be compiled separately
        compile_translator(self.module)
        self.cross_entropy = torch.compile(losses.cross_entropy, dynamic=False)
        self.r_drop = torch.compile(losses.r_drop, dynamic=False)
        self.divergence = torch.compile(losses.divergence, dynamic=False)
        self.searcher = CapturedSearch(self.dataset.split("train"), torch.compile(score_queries, dynamic=False))

    def set_step(self, step: int) -> None:
        rise = self.recipe.objective.latency_rise
        self.latency_scale.fill_(min(1.0, step / rise) if rise else 1.0)

    def draw(self, batch: Batch, random: torch.Generator) -> Tensor:
        """(rows, target) reads."""
        return draw_reads(self.module, self.recipe, batch, random, self.searcher)

    def loss(self, batch: Batch, drawn: Tensor) -> Tensor:
        objective = self.recipe.objective
        labels = batch.labels, objective.label_smoothing
        # None without monotonic heads: other layers are compiled without this argument.
        monotonic = MonotonicPass(noise=objective.stop_noise) if self.recipe.model.cross == "monotone" else None
        states = decode_batch(self.module, batch, drawn, monotonic)
        if objective.r_drop:
            again = decode_batch(self.module, batch, drawn, monotonic and MonotonicPass(noise=monotonic.noise))
            loss = self.r_drop(self.module, (states, again), *labels, objective.r_drop)
        else:
            loss = self.cross_entropy(self.module, states, *labels)
        if objective.distil:
            divergence = self.divergence(self.module, states, self.belief(batch), batch.labels)
            loss = (1 - objective.distil) * loss + objective.distil * divergence
        if monotonic is not None:
            loss = loss + self.latency_scale * losses.latency_cost(
                monotonic.delays, batch, objective.latency_average
            )
        return loss

    @torch.no_grad()
    def belief(self, batch: Batch) -> Tensor:
        """(rows, target, width) decoder states after the whole source, without dropout."""
        self.module.eval()
        states = decode_batch(self.module, batch, batch.source_lengths)
        self.module.train()
        return states

    def validate(self, module: nn.Module) -> Validation:
        assert isinstance(module, Translator)
        return validate(module, self.recipe, self.dataset)


@torch.inference_mode()
def validate(model: Translator, recipe: Recipe, dataset: Dataset) -> Validation:
    """The training loss without label smoothing, with the same random reads every time, and greedy BLEU.

    Monotonic heads stop as in decoding. In training they attend to an expectation over all stopping points, whose
    loss may be lower.
    """
    model.eval()
    device = model.device
    split = dataset.split("valid")
    random = torch.Generator().manual_seed(0)
    total, tokens = torch.zeros((), device=device, dtype=torch.float64), 0
    for batch in batches_by_length(split, recipe.train.batch_tokens):
        batch = batch.to(device)
        reads = draw_reads(model, recipe, batch, random)
        monotonic = MonotonicPass(hard=True)
        states = decode_batch(model, batch, reads, monotonic)
        total += losses.cross_entropy(model, states, batch.labels, 0.0)
        if monotonic.delays:
            total += losses.latency_cost(monotonic.delays, batch, recipe.objective.latency_average)
        tokens += batch.target_tokens
    bleu = None
    if recipe.train.validate_bleu:
        k = recipe.train.validate_k if recipe.model.encoder == "causal" else 0
        policy = Monotonic() if recipe.model.cross == "monotone" else WaitK(k) if k else Full()
        settings = recipe.evaluate
        sources = split.source.to_lists()
        outputs = translate(model, sources, policy, settings.limits, settings.batch, "validating")
        words = [" ".join(dataset.target.decode(output.units)) for output in outputs]
        bleu, _ = paper_bleu(words, dataset.text("valid")[1])
    return Validation(total.item() / tokens, bleu)


@dataclass(eq=False)
class AgentTask(Task):
    """Trains the agent to predict reads (the labels) for a translator whose weights are frozen."""

    recipe: Recipe
    dataset: Dataset
    translator: Translator
    module: Agent
    device: torch.device
    labeller: Translator | None = None  # the model whose prefix translations give the labels; None: the translator
    gpu_layout: Layout = "padded"  # an LSTM needs one sentence per row

    def __post_init__(self) -> None:
        self.observer: Observer = self.observe
        self.compiled: Translator | None = None  # a copy for packed batches; padded batches have too many shapes
        self.score: ScoreQueries = score_queries

    def compile(self) -> None:
        """Compile the translator. cuDNN's LSTM is fast without compilation."""
        self.compiled = copy.deepcopy(self.translator)
        compile_translator(self.compiled)
        self.score = torch.compile(score_queries, dynamic=False)
        self.observer = CapturedObserver(self.observe, self.compiled, self.recipe.train.batch_tokens)

    def begin(self) -> None:
        _ = self.labels  # finds the labels, or loads stored ones

    def draw(self, batch: Batch, random: torch.Generator) -> Tensor:
        """(sentences) index of a random interval for each sentence."""
        return draw_intervals(self.recipe.latencies, batch, random)[:-1].to(self.device, non_blocking=True)

    def loss(self, batch: Batch, drawn: Tensor) -> Tensor:
        targets = self.targets(batch, self.labels["train"], drawn, self.observer)
        log_odds, _ = self.module(self.translator, targets.seen, drawn, self.module.start(batch.sentences))
        return agents.loss(log_odds, targets, self.recipe.agent.label_smoothing)

    def targets(self, batch: Batch, labels: Labels, intervals: Tensor, observer: Observer) -> agents.Targets:
        """Observations and actions along the labels of each sentence for its interval; `intervals`: (sentences)."""
        path = labels.reads_of(batch, intervals)
        return agents.targets(batch, path, observer(self.translator, batch, path))

    def observe(self, model: Translator, batch: Batch, reads: Tensor) -> PathStates:
        agent = self.recipe.agent
        return observe(model, batch, reads, agent.reference == "translation", agent.inputs == "lookahead")

    @torch.inference_mode()
    def validate(self, module: nn.Module) -> Validation:
        """Mean loss per decision over all intervals, accuracy, and F1 of each action."""
        assert isinstance(module, Agent)
        module.eval()
        total, confusion = 0.0, torch.zeros(2, 2, dtype=torch.float64)  # rows: labels, columns: predictions
        for batch in batches_by_length(self.dataset.split("valid"), self.recipe.train.batch_tokens):
            batch = batch.to(self.device)
            for interval in range(self.recipe.latencies):
                intervals = torch.full((batch.sentences,), interval, device=self.device)
                targets = self.targets(batch, self.labels["valid"], intervals, self.observe)
                log_odds, _ = module(self.translator, targets.seen, intervals, module.start(batch.sentences))
                total += float(agents.loss(log_odds, targets, 0.0))
                pairs = (2 * targets.action + (log_odds >= 0).long())[targets.counts]
                confusion += torch.bincount(pairs, minlength=4).view(2, 2).double().cpu()
        right = confusion.diagonal()
        f1 = 2 * right / (confusion.sum(0) + confusion.sum(1)).clamp(min=1)
        figures = {
            "accuracy": float(right.sum() / confusion.sum()),
            "f1_read": float(f1[Action.READ]),
            "f1_write": float(f1[Action.WRITE]),
        }
        return Validation(total / float(confusion.sum()), None, figures)

    # The labels are the reads of every sentence in every interval.

    @functools.cached_property
    def labels(self) -> dict[str, Labels]:
        return {name: self.cached_labels(name) for name in ("train", "valid")}

    def cached_labels(self, name: str) -> Labels:
        """The labels of a split. They are stored in the translator's run, for other agents and for resuming."""
        split = self.dataset.split(name)
        if not self.recipe.start:
            return self.find(split)
        origin = self.label_origin(split)
        path = Path(self.recipe.start) / "labels" / f"{name}.{sha256_lines([json.dumps(origin)])[:12]}.safetensors"
        if path.is_file():
            return Labels.from_reads(split, load_tensors(path, self.device)[0]["reads"])
        labels = self.find(split)
        save_tensors(path, {"reads": labels.reads}, origin)
        return labels

    def label_origin(self, split: Split) -> dict[str, object]:
        """Everything that the labels depend on. Its checksum is part of the name of their file."""
        finder = self.finder
        return {
            "version": LABEL_CACHE_VERSION,
            "weights": weights_checksum(Path(self.recipe.agent.labeller or self.recipe.start)),
            "texts": [hashlib.sha256(side.tokens.tobytes()).hexdigest() for side in (split.source, split.target)],
            "how": values_with(finder, Role.READS) if finder else {"translation": "token"},
        }

    @property
    def finder(self) -> Search | None:
        """Settings of the search that finds the labels; None if agreeing prefix translations give the labels."""
        agent, search = self.recipe.agent, self.recipe.search
        if agent.labels == "search":
            return search
        return bounded_agreement(search) if agent.agreement == "within" else None

    def find(self, split: Split) -> Labels:
        finder, tokens = self.finder, self.recipe.train.batch_tokens
        if finder is None:
            return find_agreement_labels(self.labeller or self.translator, split, tokens)
        if self.compiled is None or not worth_packing(split, tokens):
            return find_labels(self.translator, finder, split, tokens)
        search = captured_label_search(self.compiled, finder, self.score)
        return find_labels_packed(search, finder, split, tokens, self.device)


def require_sizes(recipe: Recipe, start: Recipe) -> None:
    """Raise UserError if the weights of `start` do not fit the model of `recipe`."""
    model, needed = to_table(recipe.model), to_table(start.model)
    names = [name for name in model if model[name] != needed[name] and name not in ("dropout", "encoder", "cross")]
    if names:
        sizes = ", ".join(f"model.{name} = {json.dumps(needed[name])}" for name in names)
        raise UserError(f"start: {recipe.start} has {sizes}; set the same in the recipe of {recipe.run}")


def make_task(recipe: Recipe, dataset: Dataset, device: torch.device) -> Task:
    """Make the task of a recipe with one stage, with its initial weights."""
    torch.manual_seed(recipe.train.seed)
    if recipe.stages == ("agent",):
        if not recipe.start:
            raise UserError("start: the agent learns from a trained translator; name its run folder")
        trained = load_translator(Path(recipe.start), device)
        if trained.model.bidirectional:
            raise UserError(f"start: the encoder of {recipe.start} needs the whole source, so no agent can use it")
        dataset.require_units("start", trained.path)
        translator = trained.model.requires_grad_(False)
        if recipe.model.width != (width := trained.recipe.model.width):
            raise UserError(f"model.width: {recipe.model.width}, but {recipe.start} has {width}; leave it out")
        agent = Agent(recipe.agent, recipe.model.width, recipe.latencies).to(device)
        labeller = trained
        if recipe.agent.labels == "translation":
            if recipe.agent.labeller:
                labeller = load_translator(Path(recipe.agent.labeller), device)
                dataset.require_units("agent.labeller", labeller.path)
            names = "train", "valid"
            targets = cached_translations(labeller, dataset, Path(recipe.run), recipe.evaluate, names)
            dataset = dataset.with_splits({n: Split(dataset.split(n).source, targets[n]) for n in names})
        train, pairs = dataset.split("train"), recipe.agent.pairs
        if 0 < pairs < (count := len(train.source)):
            chosen = train.select([number * count // pairs for number in range(pairs)])
            dataset = dataset.with_splits({"train": chosen})
        return AgentTask(recipe, dataset, translator, agent, device, labeller.model)
    if recipe.teacher:
        dataset = with_teacher(dataset, Path(recipe.teacher), recipe.evaluate, device)
    model = Translator(recipe.model, len(dataset.source), len(dataset.target)).to(device)
    if recipe.start:
        start = Path(recipe.start)
        weights = weights_path(start)
        dataset.require_units("start", start)
        require_sizes(recipe, read_recipe(start))
        tensors = read_weights(start, model, device)[0]
        if recipe.model.cross == "monotone":
            tensors = weights_from_soft_attention(model, tensors)
        load_weights(weights, model, tensors)
    return TranslatorTask(recipe, dataset, model, device)
