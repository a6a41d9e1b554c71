"""What can be trained: the translator under some reads, or the agent that learns reads. The loop knows neither.

A task owns its module, says what a batch costs, and how good the module is on the development set.
"""

import abc
import copy
import functools
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from whilst.core.cuda_graphs import CapturedGraph
from whilst.core.files import sha256, sha256_lines
from whilst.core.settings import Recipe, Role, Search, values_with
from whilst.data.batches import Batch, batches_by_length
from whilst.data.dataset import Dataset, Split
from whilst.model import agent as agents
from whilst.model.agent import Agent
from whilst.model.attention import use_small_tiles
from whilst.model.checkpoint import load_tensors, save_tensors
from whilst.model.forward import decode_batch
from whilst.model.monotonic_attention import Delays, hasten
from whilst.model.observations import PathStates, observe
from whilst.model.reads import Action
from whilst.model.run_folder import WEIGHTS
from whilst.model.transformer import Translator
from whilst.search.agreement import bounded_agreement, find_agreement_labels
from whilst.search.labels import Labels, PackedSearch, find_labels, find_labels_packed, worth_packing
from whilst.search.packed_search import (
    ScoreQueries,
    count_queries,
    row_size,
    score_queries,
    search_all_packed,
    search_packed,
)
from whilst.search.packing import Packing
from whilst.training import losses
from whilst.training.sampling import Searcher, draw_intervals, draw_reads, of_tokens, search_sentences
from whilst.training.validate import Validation, validate

FOUND = 2  # bump when search finds other reads than before, so that cached labels are not used
Looker = Callable[[Translator, Batch, Tensor], PathStates]


def compile_layers(model: Translator) -> None:
    """Once each: all encoder layers share one program, all decoder layers another."""
    # Every stage has shapes of its own. Past the limit attention would not be compiled: too much for any memory.
    torch._dynamo.config.recompile_limit = 128
    for layer in (*model.encoder, *model.decoder):
        layer.compile(dynamic=False)


class Task(abc.ABC):
    module: nn.Module  # what is trained
    dataset: Dataset
    packs: bool  # whether batches may be packed on a GPU
    boxes: bool = False  # or, if not, whether they are padded to few shapes there
    device: torch.device

    @abc.abstractmethod
    def compile(self) -> None:
        """Make it fast on a GPU."""

    @abc.abstractmethod
    def at(self, step: int) -> None:
        """Set what depends on how many updates have been done. Not part of a recorded update."""

    @abc.abstractmethod
    def draw(self, batch: Batch, random: torch.Generator) -> Tensor:
        """What is random about a batch, or found without gradients. Not part of a recorded update."""

    @abc.abstractmethod
    def loss(self, batch: Batch, drawn: Tensor) -> Tensor:
        """The summed loss; of fixed shapes where batches are packed."""

    @abc.abstractmethod
    def validate(self, module: nn.Module) -> Validation:
        """How good these weights are."""


@dataclass(eq=False)
class Translating(Task):
    """The translator: full-sentence, wait-k, multi-path, or under the reads that it finds itself."""

    recipe: Recipe
    dataset: Dataset
    module: Translator
    device: torch.device
    packs: bool = True

    def __post_init__(self) -> None:
        self.boxes = self.recipe.model.cross == "monotone"
        self.packs = not self.boxes
        self.cross_entropy = losses.cross_entropy
        self.agreeing, self.divergence = losses.r_drop, losses.divergence
        self.searcher: Searcher = search_sentences
        self.weigher: ScoreQueries = score_queries
        self.captured: dict[int, CapturedGraph] = {}  # searches, by the size of their rows
        self.haste = torch.ones((), device=self.device)  # of the full weight of latency, see `at`

    def compile(self) -> None:
        if self.boxes:
            hasten(self.module)
            return  # each of the shapes would be compiled anew
        self.module.hasten(self.recipe.train.shortcuts)
        if "tiles" in self.recipe.train.shortcuts:
            use_small_tiles(self.device)
        compile_layers(self.module)
        self.cross_entropy = torch.compile(losses.cross_entropy, dynamic=False)
        self.agreeing = torch.compile(losses.r_drop, dynamic=False)
        self.divergence = torch.compile(losses.divergence, dynamic=False)
        self.weigher = torch.compile(score_queries, dynamic=False)
        self.searcher = self.search_captured

    @functools.cached_property
    def split(self) -> Split:
        return self.dataset.split("train")

    def search_captured(self, model: Translator, batch: Batch, settings: Search, firsts: Tensor) -> Tensor:
        """`search_sentences` as a CUDA graph of one row, where batches are packed."""
        if not batch.packed:
            return search_sentences(model, batch, settings, firsts)
        looks = count_queries(self.split, batch.numbers, firsts[:-1].numpy(), settings.size, settings)
        size = min((size for size in self.captured if size >= looks), default=row_size(looks))

        def work(*tensors: Tensor) -> Tensor:
            given = batch.with_tensors(tensors[:-1])
            # Without the cache, which would keep weights as they were when this was recorded.
            with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
                return search_packed(model, given, settings, tensors[-1], size, self.weigher)

        inputs = (*batch.tensors(), of_tokens(firsts, batch))
        if size not in self.captured:
            self.captured[size] = CapturedGraph(work, inputs, next(iter(self.captured.values()), None))
        return self.captured[size](inputs)

    def at(self, step: int) -> None:
        rise = self.recipe.objective.latency_rise
        self.haste.fill_(min(1.0, step / rise) if rise else 1.0)

    def draw(self, batch: Batch, random: torch.Generator) -> Tensor:
        return draw_reads(self.module, self.recipe, batch, random, self.searcher)

    def loss(self, batch: Batch, drawn: Tensor) -> Tensor:
        objective = self.recipe.objective
        given = batch.labels, objective.label_smoothing
        # Compiled layers need not know of it where nobody walks.
        walk = Delays(noise=objective.stop_noise) if self.recipe.model.cross == "monotone" else None
        states = decode_batch(self.module, batch, drawn, walk)
        if objective.r_drop:
            both = states, decode_batch(self.module, batch, drawn, walk and Delays(noise=walk.noise))
            loss = self.agreeing(self.module, both, *given, objective.r_drop)
        else:
            loss = self.cross_entropy(self.module, states, *given)
        if objective.distil:
            apart = self.divergence(self.module, states, self.belief(batch), batch.labels)
            loss = (1 - objective.distil) * loss + objective.distil * apart
        if walk is not None:
            loss = loss + self.haste * losses.latency_cost(objective, batch, walk)
        return loss

    @torch.no_grad()
    def belief(self, batch: Batch) -> Tensor:
        """(rows, target, width) the states of the model as it is used, the whole source read."""
        self.module.eval()
        states = decode_batch(self.module, batch, batch.source_lengths)
        self.module.train()
        return states

    def validate(self, module: nn.Module) -> Validation:
        assert isinstance(module, Translator)
        return validate(module, self.recipe, self.dataset)


@dataclass(eq=False)
class Deciding(Task):
    """The agent, on the lessons of a translator that stays as it is."""

    recipe: Recipe
    dataset: Dataset
    translator: Translator
    module: Agent
    device: torch.device
    packs: bool = False  # an LSTM runs along a row

    def __post_init__(self) -> None:
        self.looker: Looker = self.look
        self.compiled: Translator | None = None  # a copy for packed batches; the padded ones have many shapes
        self.weigher: ScoreQueries = score_queries
        self.captured: CapturedGraph | None = None

    @functools.cached_property
    def labels(self) -> dict[str, Labels]:
        """The reads of both splits, found when they are first needed."""
        return {name: self.stored(name) for name in ("train", "valid")}

    def stored(self, name: str) -> Labels:
        """The reads of a split. They are kept with the translator: other agents need them, and one that goes on."""
        split = self.dataset.split(name)
        if not self.recipe.start:
            return self.find(split)
        about = self.origin(split)
        path = Path(self.recipe.start) / "labels" / f"{name}.{sha256_lines([json.dumps(about)])[:12]}.safetensors"
        if path.is_file():
            return Labels.from_reads(split, load_tensors(path, self.device)[0]["reads"])
        found = self.find(split)
        save_tensors(path, {"reads": found.reads}, about)
        return found

    @functools.cached_property
    def weights(self) -> str:
        """The translator's, for both splits."""
        return sha256(Path(self.recipe.start) / WEIGHTS)

    def origin(self, split: Split) -> dict[str, object]:
        """All that decides what is found."""
        finder = self.finder
        return {
            "version": FOUND,
            "weights": self.weights,
            "texts": [hashlib.sha256(side.tokens.tobytes()).hexdigest() for side in (split.source, split.target)],
            "how": values_with(finder, Role.READS) if finder else {"translation": "token"},
        }

    @property
    def finder(self) -> Search | None:
        """The search that finds the reads; None if prefixes are compared instead."""
        agent, search = self.recipe.agent, self.recipe.search
        if agent.labels == "search":
            return search
        return bounded_agreement(search) if agent.agreement == "within" else None

    def find(self, split: Split) -> Labels:
        finder, tokens = self.finder, self.recipe.train.batch_tokens
        if finder is None:
            return find_agreement_labels(self.translator, split, tokens)
        if self.compiled is None or not worth_packing(split, tokens):
            return find_labels(self.translator, finder, split, tokens)
        return find_labels_packed(self.recorded_search(self.compiled, finder), finder, split, tokens, self.device)

    def recorded_search(self, model: Translator, settings: Search) -> PackedSearch:
        """`search_all` as a CUDA graph of one row; who has it holds its memory."""
        recorded: list[CapturedGraph] = []

        def find(batch: Batch, size: int) -> Tensor:
            def work(*tensors: Tensor) -> Tensor:
                given = batch.with_tensors(tensors)
                with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
                    return search_all_packed(model, given, settings, size, self.weigher)

            if not recorded:
                recorded.append(CapturedGraph(work, batch.tensors()))
            return recorded[0](batch.tensors())

        return find

    def compile(self) -> None:
        """The translator. cuDNN's LSTM is fast as it is."""
        shortcuts = self.recipe.train.shortcuts
        if "tiles" in shortcuts:
            use_small_tiles(self.device)
        self.compiled = copy.deepcopy(self.translator)
        self.compiled.hasten(shortcuts)
        compile_layers(self.compiled)
        self.weigher = torch.compile(score_queries, dynamic=False)
        if "looks" in shortcuts:
            self.looker = self.look_captured

    def look(self, model: Translator, batch: Batch, path: Tensor) -> PathStates:
        agent = self.recipe.agent
        return observe(model, batch, path, agent.reference == "translation", agent.inputs == "ahead")

    def look_captured(self, model: Translator, batch: Batch, path: Tensor) -> PathStates:
        """The same as a CUDA graph of one packed shape."""
        packing = Packing.for_batch(batch, self.recipe.train.batch_tokens)
        whole, compiled = packing.pack(batch), self.compiled or model

        def work(*tensors: Tensor) -> Tensor:
            # Without the cache, whose copies of weights do not outlive a recording.
            with torch.no_grad(), torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
                self.shown = self.look(compiled, whole.with_tensors(tensors[:-1]), tensors[-1]).bfloat16()
            return self.shown.words

        inputs = (*whole.tensors(), packing.pack_target(path, 1))
        self.captured = self.captured or CapturedGraph(work, inputs)
        self.captured(inputs)
        return packing.unpack(self.shown)  # the tensors that were recorded, filled anew

    def at(self, step: int) -> None:
        """Nothing to do: every update is like the first."""

    def draw(self, batch: Batch, random: torch.Generator) -> Tensor:
        """(sentences) the number of an interval for each."""
        return draw_intervals(self.recipe.latencies, batch, random)[:-1].to(self.device, non_blocking=True)

    def lesson(self, batch: Batch, labels: Labels, drawn: Tensor, looker: Looker) -> agents.Lesson:
        path = labels.reads_of(batch, drawn)
        return agents.lesson(batch, path, looker(self.translator, batch, path))

    def loss(self, batch: Batch, drawn: Tensor) -> Tensor:
        given = self.lesson(batch, self.labels["train"], drawn, self.looker)
        odds, _ = self.module(self.translator, given.seen, drawn, self.module.start(batch.sentences))
        return agents.loss(odds, given, self.recipe.agent.label_smoothing)

    @torch.inference_mode()
    def validate(self, module: nn.Module) -> Validation:
        """Loss of a decision, and how often it is right: over all, and F1 of each action."""
        assert isinstance(module, Agent)
        module.eval()
        total, confusion = 0.0, torch.zeros(2, 2, dtype=torch.float64)  # rows: wanted, columns: decided
        for batch in batches_by_length(self.dataset.split("valid"), self.recipe.train.batch_tokens):
            batch = batch.to(self.device)
            for number in range(self.recipe.latencies):
                numbers = torch.full((batch.sentences,), number, device=self.device)
                given = self.lesson(batch, self.labels["valid"], numbers, self.look)
                odds, _ = module(self.translator, given.seen, numbers, module.start(batch.sentences))
                total += float(agents.loss(odds, given, 0.0))
                pairs = (2 * given.action + (odds >= 0).long())[given.counts]
                confusion += torch.bincount(pairs, minlength=4).view(2, 2).double().cpu()
        right = confusion.diagonal()
        f1 = 2 * right / (confusion.sum(0) + confusion.sum(1)).clamp(min=1)
        figures = {
            "accuracy": float(right.sum() / confusion.sum()),
            "f1_read": float(f1[Action.READ]),
            "f1_write": float(f1[Action.WRITE]),
        }
        return Validation(total / float(confusion.sum()), None, figures)
