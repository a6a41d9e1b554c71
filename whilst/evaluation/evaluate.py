"""Translate text with a trained model; evaluate it: translate, write the trace, score it, write the record."""

import dataclasses
import functools
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Generic, TypeVar

import torch
from rich.text import Text

from whilst.core.action_rows import action_rows
from whilst.core.console import console, notes
from whilst.core.distributed import device_name, pick_device
from whilst.core.errors import UserError
from whilst.core.files import STDIN, read_bytes, sha256
from whilst.core.policy_spec import PolicySpec, agent_policies, oracle_policies
from whilst.core.provenance import provenance
from whilst.core.settings import Evaluate, Recipe
from whilst.data.dataset import Dataset, Split
from whilst.data.text import cleaner, read_lines, split_lines
from whilst.data.vocabulary import EOS
from whilst.data.writer import GuidedWriter, KnownSource, WordRules
from whilst.decoding.batched import translate
from whilst.decoding.offline import OfflineModel, Rule, TranslatorModel, needs_retranslation
from whilst.decoding.offline import translate as translate_anew
from whilst.decoding.output import Output
from whilst.decoding.policies import policy_for
from whilst.decoding.pretrained import Pretrained, open_pretrained
from whilst.evaluation.record import (
    Record,
    header,
    read_record,
    record_path,
    require_replaceable,
    trace_path,
    write_evaluation,
)
from whilst.evaluation.trace import Sentence, read_trace
from whilst.model.checkpoint import LoadedRun, load_run
from whilst.model.lags import at_lag
from whilst.model.run_folder import AGENT, SEARCH, WEIGHTS, has_agent, model_folder, override_after_training
from whilst.policy import Policy
from whilst.policy.registry import NO_AGENT, NO_HEADS

MAX_WORKERS = 4  # processes that score and write, enough to keep up with one GPU

T = TypeVar("T")
Loaded = LoadedRun | Pretrained
L = TypeVar("L", LoadedRun, Loaded)


def words_with_times(source: KnownSource, output: Output, rules: WordRules) -> Iterator[tuple[str, int, float]]:
    """The words of a translation, each with the reads and the time at which it was complete."""
    writer = GuidedWriter(rules.writer(), source)
    # reads and times have one more entry than units, that of the end mark
    for unit, reads, ms in zip(output.units, output.reads, output.times, strict=False):
        for word in writer.write(unit, reads):
            yield word, reads, ms
    # the last word may be complete only with the end mark
    for word in writer.write(EOS, output.reads[-1]):
        yield word, output.reads[-1], output.times[-1]


def to_sentence(index: int, source: str, reference: str, output: Output, trained: Loaded) -> Sentence:
    """The trace of one sentence."""
    known = trained.rules.known_source(source.split())
    count = len(known.units)
    written = [
        (word, known.numbers[min(reads, count) - 1], ms)
        for word, reads, ms in words_with_times(known, output, trained.rules)
    ]
    return Sentence.of(index, (source, reference), written, output.reads[: len(output.units)], count)


def translate_lines(
    trained: Loaded, lines: Sequence[str], policy: Policy | Rule, settings: Evaluate
) -> list[Output]:
    """Translate cleaned lines."""
    sources = [trained.rules.known_source(line.split()) for line in lines]
    if isinstance(policy, Rule):
        model = trained.model if isinstance(trained.model, OfflineModel) else TranslatorModel(trained.model)
        return translate_anew(model, policy, sources, settings.limits, settings.batch)
    assert isinstance(trained, LoadedRun)
    units = [[*source.units, EOS] for source in sources]
    writers = [GuidedWriter(trained.rules.writer(), source) for source in sources if settings.guards]
    return translate(trained.model, units, policy, settings.limits, settings.batch, writers=writers)


def policy_or_rule(trained: Loaded, policy: PolicySpec, split: Split | None = None) -> Policy | Rule:
    """The policy, or the rule for a model of whole sentences. `split`: the pairs whose reads an oracle searches."""
    if isinstance(trained, Pretrained) or needs_retranslation(trained.recipe.model, policy):
        return Rule(policy)
    return policy_for(trained, policy, trained.recipe.evaluate, split)


def translate_text(
    run: Path, file: Path | None, policy: PolicySpec, show: bool, overrides: list[str], device: str
) -> None:
    """The `translate` command: print translations of lines; `show`: print their READs and WRITEs instead."""
    folder, policy = find_model_and_policy(run, policy)
    trained = with_precision(opener(overrides, device)(folder))
    recipe = trained.recipe
    chosen = policy_or_rule(trained, policy)
    clean = cleaner(recipe.data, recipe.data.source)
    lines = [clean(line) for line in lines_of(file)]
    sources = list(filter(None, lines))
    outputs = translate_lines(trained, sources, chosen, recipe.evaluate)
    sentences = (to_sentence(0, line, "", output, trained) for line, output in zip(sources, outputs, strict=True))
    print_translations(lines, sentences, show)


def lines_of(file: Path | None) -> list[str]:
    """The lines of a file; None and - stand for standard input."""
    return split_lines(read_bytes(STDIN), "standard input") if file in (None, STDIN) else read_lines(file)


def print_translations(lines: Iterable[str], sentences: Iterator[Sentence], show: bool) -> None:
    """Print the translations of lines, or READs and WRITEs. `sentences`: one for each line that is not empty."""
    width = console.width if console.is_terminal else 100
    for line in lines:
        if line:
            sentence = next(sentences)
            if show:
                console.print(actions_of(sentence, width), soft_wrap=True)
            else:
                print(sentence.prediction)
        elif not show:
            print()  # so that files stay aligned


def actions_of(sentence: Sentence, width: int) -> Text:
    """The READs and WRITEs of a sentence: below each source word, the words written before the next READ."""
    words = (sentence.source or "").split()
    columns: list[list[str]] = [[] for _ in words]
    for word, delay in zip(sentence.words, sentence.delays, strict=True):
        columns[delay - 1].append(word)
    return action_rows(words, columns, width)


def evaluate(
    trained: Loaded, dataset: Dataset, chosen: Policy | Rule, folder: Path, with_text: bool
) -> Callable[[], Record]:
    """Translate a split by the settings of the run.

    Returns a function for the rest of the work, which needs no model and can run in another process: it scores the
    translations and writes trace and record (see `trace_path`).
    """
    settings = trained.recipe.evaluate
    sources, references = dataset.text(settings.split)
    began = time.perf_counter()
    outputs = translate_lines(trained, sources, chosen, settings)
    seconds = time.perf_counter() - began
    sentences = [
        to_sentence(index, source, reference, output, trained)
        for index, (source, reference, output) in enumerate(zip(sources, references, outputs, strict=True))
    ]
    trace = trace_path(folder, chosen.spec, settings)
    record_path(trace).unlink(missing_ok=True)  # if this process is killed, no old record stays beside a new trace
    about = {
        **header(trained.recipe, chosen.spec, dataset, trained.path),
        **weights(trained, chosen.spec),
        "seconds": round(seconds, 2),
        **provenance(device_name(trained.device)),
    }
    return functools.partial(write_evaluation, about, trace, sentences, with_text)


def weights(trained: Loaded, policy: PolicySpec) -> dict[str, str]:
    """Checksums of model and agent; the agent's is empty if the policy is not an agent."""
    agent = sha256(trained.path / AGENT / WEIGHTS) if policy.kind == "agent" else ""
    return {"model_sha256": trained.checksum, "agent_sha256": agent}


def check_precision(settings: Evaluate, device: torch.device) -> None:
    if settings.precision == "half" and device.type != "cuda":
        raise UserError('evaluate.precision: "half" is for GPUs, it is slower on a CPU; write "single"')


def check_evaluation(recipe: Recipe, dataset: Dataset, device: torch.device) -> None:
    """Check the settings of an evaluation before training, so that errors show early."""
    settings = recipe.evaluate
    check_precision(settings, device)
    dataset.text(settings.split)
    for name in settings.policies if len(recipe.stages) > 1 else ():  # without training, evaluation fails at once
        policy = PolicySpec.parse(name)
        kind = policy.kind
        if recipe.model.encoder == "bidirectional":
            Rule(policy)
        if kind == "mma" and recipe.model.cross != "monotone":
            raise UserError(NO_HEADS)
        if kind == "oracle":
            policy.index_in(oracle_policies(recipe.search.intervals))
        if kind == "agent" and "agent" in recipe.stages:
            policy.index_in(agent_policies(recipe.search.intervals, recipe.agent.labels))
        elif kind == "agent" and not has_agent(model_folder(Path(recipe.run), policy)):
            raise UserError(NO_AGENT.format(policy.name, recipe.run))


def with_precision(trained: L) -> L:
    """Convert model and agent to half precision if the settings of the run say so."""
    settings = trained.recipe.evaluate
    check_precision(settings, trained.device)
    if settings.precision == "half":
        for part in trained.modules:
            part.half()  # in place, since policies hold the same model
    return trained


def loader(overrides: list[str], device: str, settings: Evaluate | None = None) -> Callable[[Path], LoadedRun]:
    """Load each run folder once, since policies share models. `settings` replace the run's own."""

    def load(folder: Path) -> LoadedRun:
        trained = load_run(folder, pick_device(device))
        recipe = dataclasses.replace(trained.recipe, evaluate=settings or trained.recipe.evaluate)
        return dataclasses.replace(trained, recipe=override_after_training(recipe, overrides, folder))

    return functools.cache(load)


def opener(overrides: list[str], device: str, settings: Evaluate | None = None) -> Callable[[Path], Loaded]:
    """Like `loader`, but also opens pretrained models by their names."""
    load_folder = loader(overrides, device, settings)

    @functools.cache
    def load(name: Path) -> Loaded:
        if Recipe(run=str(name)).checkpoint:
            return open_pretrained(str(name), overrides, pick_device(device))
        return load_folder(name)

    return load


@dataclasses.dataclass(frozen=True)
class Job(Generic[L]):
    """A policy to evaluate with a run, whose recipe has the settings of the evaluation."""

    policy: PolicySpec  # without a threshold, which is in the settings
    trained: L

    @property
    def settings(self) -> Evaluate:
        return self.trained.recipe.evaluate


def find_model_and_policy(run: Path, policy: PolicySpec) -> tuple[Path, PolicySpec]:
    """The folder with the model for a policy, and the policy; lag-3 is replaced by the policy that has this lag."""
    folder = model_folder(run, policy)
    policy, note = at_lag(folder, policy)
    if note:
        notes.print(note)
    return folder, policy


def find_jobs(run: Path, policies: Sequence[str], load: Callable[[Path], L]) -> tuple[Recipe, list[Job[L]]]:
    """A run's recipe, and a job for each of these policies, by default the recipe's, without duplicates."""
    # a run that began with the translator of another run has only a fine-tuned model
    run = run if (run / "recipe.json").is_file() or not (run / SEARCH).is_dir() else run / SEARCH
    recipe = load(run).recipe
    jobs: dict[tuple[PolicySpec, float], Job[L]] = {}
    for name in policies or recipe.evaluate.policies:
        folder, policy = find_model_and_policy(run, PolicySpec.parse(name))
        trained = load(folder)  # its recipe has the default threshold of its agent
        threshold = trained.recipe.evaluate.threshold if policy.threshold is None else policy.threshold
        settings = dataclasses.replace(recipe.evaluate, threshold=threshold)
        trained = dataclasses.replace(trained, recipe=dataclasses.replace(trained.recipe, evaluate=settings))
        job = Job(dataclasses.replace(policy, threshold=None), trained)
        jobs.setdefault((job.policy, threshold), job)
    return recipe, list(jobs.values())


def evaluate_run(
    run: Path,
    policies: Sequence[str],
    out: Path | None,
    with_text: bool,
    overrides: list[str],
    device: str,
    settings: Evaluate | None = None,
) -> list[Record]:
    """Evaluate a run under each policy. Defaults come from the run's recipe."""
    recipe, jobs = find_jobs(run, policies, opener(overrides, device, settings))
    dataset = Dataset.open(Path(recipe.data.dataset))
    dataset.require_languages("data.dataset", run, recipe.data)
    if recipe.checkpoint:
        run = Path("runs") / recipe.checkpoint.replace("/", "--")
    chosen = []  # choose all policies first, so that an error in the last one costs no time
    for job in jobs:
        trained = with_precision(job.trained)
        split = dataset.split(job.settings.split)
        if job.policy.kind == "oracle":
            dataset.require_units("data.dataset", trained.path)  # the search runs on the dataset's own units
        chosen.append((trained, policy_or_rule(trained, job.policy, split)))
    folder = out or run / "evaluations"
    planned = ((trace_path(folder, job.policy, job.settings), job.policy, job.trained.recipe) for job in jobs)
    require_replaceable(planned, dataset, is_own=out is None and not overrides)
    works = (evaluate(trained, dataset, policy, folder, with_text) for trained, policy in chosen)
    in_parallel = len(chosen) > 1 and pick_device(device).type == "cuda"
    return run_in_workers(works, min(MAX_WORKERS, (os.cpu_count() or 1) - 1) if in_parallel else 0)


def run_in_workers(jobs: Iterable[Callable[[], T]], workers: int) -> list[T]:
    """The results of all jobs, in order. Without workers, jobs run in this process.

    With workers, each job starts when `jobs` yields it; jobs and results must be picklable. If `jobs` raises, those
    already submitted are still completed.
    """
    if not workers:
        return [job() for job in jobs]
    # Spawned, not forked: a fork would inherit part of the GPU driver's state.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool:
        return [future.result() for future in [pool.submit(job) for job in jobs]]


def find_evaluated(
    run: Path, policies: Sequence[str], with_text: bool, settings: Evaluate | None = None
) -> dict[str, Record]:
    """The evaluations of a run that need not be repeated, by policy: complete and with unchanged inputs."""
    folder = run / "evaluations"
    if not folder.is_dir():
        return {}
    recipe, jobs = find_jobs(run, policies, loader([], "cpu", settings))
    dataset = Dataset.open(Path(recipe.data.dataset))
    found = [_find_record(job, dataset, folder, with_text) for job in jobs]
    return {name: record for name, record in zip(policies, found, strict=True) if record is not None}


def _find_record(job: Job[LoadedRun], dataset: Dataset, folder: Path, with_text: bool) -> Record | None:
    """The record of the same weights on the same text with the same settings, if its trace is complete."""
    trained, policy = job.trained, job.policy
    trace = trace_path(folder, policy, job.settings)
    if policy.kind == "agent" and trained.agent is None:
        return None
    try:
        record, sentences = read_record(record_path(trace)), read_trace(trace)
    except UserError:  # absent, damaged, or of another version
        return None
    about = header(trained.recipe, policy, dataset, trained.path) | weights(trained, policy)
    now = dataclasses.replace(record, **about)
    names = ("policy", "source_sha256", "reference_sha256", "deciding", "model_sha256", "agent_sha256")
    same = all(getattr(now, name) == getattr(record, name) for name in names)
    complete = len(sentences) == len(dataset.text(job.settings.split)[0])
    has_text = all((sentence.source is not None) == with_text for sentence in sentences)
    return record if same and complete and has_text else None
