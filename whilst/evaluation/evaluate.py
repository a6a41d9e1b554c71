"""From a trained model and a text to a trace and its record: what was written, when, and how good it is."""

import dataclasses
import functools
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch

from whilst.core.console import console, progress_bar
from whilst.core.distributed import pick_device, provenance
from whilst.core.errors import UserError
from whilst.core.files import sha256_lines
from whilst.core.policy_spec import PolicySpec, agent_policies, oracle_policies
from whilst.core.settings import Evaluate, Recipe
from whilst.core.workers import run_in_workers, worker_count
from whilst.data.dataset import Dataset
from whilst.data.vocabulary import EOS
from whilst.decoding.batched import translate
from whilst.decoding.beam import beam_search
from whilst.decoding.monotonic_heads import find_heads, heads_table, write_heads
from whilst.decoding.output import Output
from whilst.decoding.policies import policy_for
from whilst.evaluation.identity import agent_checksum, origin, pair_name, policy_name, settings_table, system_name
from whilst.evaluation.record import Record, record_path, require_same_runs, require_same_text, write_up
from whilst.evaluation.trace import Sentence
from whilst.model.checkpoint import LoadedRun, load_run
from whilst.model.run_folder import SEARCH, has_agent, model_folder, override_after_training
from whilst.policy import Policy
from whilst.policy.monotonic import NO_HEADS, Monotonic
from whilst.policy.registry import NO_AGENT

NO_BEAM = "evaluate.beam: a beam takes words back, so it is for full only, not {}"


def words_with_times(source: Sequence[str], output: Output, trained: LoadedRun) -> Iterator[tuple[str, int, float]]:
    """The words of a translation, each with the reads and the time at which it was whole."""
    buffer = trained.target.word_buffer(trained.recipe.evaluate.copies)
    waiting = deque(trained.source.unknown_words(source))
    # One entry more in reads and times than in units: the end mark's.
    for unit, reads, ms in zip(output.units, output.reads, output.times, strict=False):
        while waiting and waiting[0][0] <= reads:
            buffer.add_unknown(waiting.popleft()[1])
        for word in buffer.feed(unit):
            yield word, reads, ms
    # A word whose end only the end mark shows is whole when that is written.
    for word in buffer.flush():
        yield word, output.reads[-1], output.times[-1]


def to_sentence(index: int, source: str, reference: str, output: Output, trained: LoadedRun) -> Sentence:
    """What happened in one sentence, in words and in units."""
    words = source.split()
    units, word_of_unit = trained.source.encode(words)
    written = list(words_with_times(words, output, trained))
    return Sentence(
        index=index,
        prediction=" ".join(word for word, _, _ in written),
        delays=tuple(word_of_unit[min(reads, len(units)) - 1] for _, reads, _ in written),
        elapsed=tuple(ms for _, _, ms in written),
        reads=tuple(min(reads, len(units)) for reads, _ in zip(output.reads, output.units, strict=False)),
        source_length=len(words),
        source_units=len(units),
        reference_length=len(reference.split()),
        source=source,
        reference=reference,
    )


def to_units(trained: LoadedRun, lines: Sequence[str]) -> list[list[int]]:
    """Cleaned lines as the model reads them."""
    return [[*trained.source.encode(line.split())[0], EOS] for line in lines]


def translate_lines(trained: LoadedRun, lines: Sequence[str], policy: Policy, settings: Evaluate) -> list[Output]:
    """Translate cleaned lines; beam search where the settings ask for it."""
    limits = settings.limits
    sources = to_units(trained, lines)
    if settings.beam == 1:
        return translate(trained.model, sources, policy, limits, settings.batch)
    check_beam(policy.spec, settings)
    size = max(1, settings.batch // settings.beam)
    outputs: list[Output] = []
    for start in progress_bar(range(0, len(sources), size), "translating", "batches"):
        outputs += beam_search(trained.model, sources[start : start + size], settings.beam, limits)
    return outputs


def evaluate(
    trained: LoadedRun,
    dataset: Dataset,
    chosen: Policy,
    settings: Evaluate,
    folder: Path,
    with_text: bool,
) -> Callable[[], Record]:
    """Translate a split. What is left to do needs no model, so that another process may do it: to score it, and to
    write `folder/SPLIT.NAME.jsonl.xz` and its record beside it (see `policy_name`)."""
    sources, references = dataset.text(settings.split)
    began = time.perf_counter()
    outputs = translate_lines(trained, sources, chosen, settings)
    seconds = time.perf_counter() - began
    sentences = [
        to_sentence(index, source, reference, output, trained)
        for index, (source, reference, output) in enumerate(zip(sources, references, outputs, strict=True))
    ]
    name = policy_name(chosen.spec, settings)
    trace = trace_path(folder, chosen.spec, settings)
    record_path(trace).unlink(missing_ok=True)  # killed now, it must not leave a new trace beside an old record
    if isinstance(chosen, Monotonic):
        heads = find_heads(trained.model, to_units(trained, sources), outputs, settings.batch)
        write_heads(folder / f"{settings.split}.{name}.heads.json", heads)
        console.print(heads_table(heads))
    recipe = trained.recipe
    about = {
        "system": system_name(recipe, chosen.spec, trained.path),
        "policy": name,
        "pair": pair_name(recipe),
        "split": settings.split,
        "source_sha256": sha256_lines(sources),
        "reference_sha256": sha256_lines(references),
        "settings": settings_table(recipe, settings, dataset, chosen.spec),
        "model_sha256": trained.checksum,
        "agent_sha256": agent_checksum(trained, chosen.spec),
        "origin": origin(trained.path, recipe),
        "seconds": round(seconds, 2),
        **provenance(trained.model.target_embedding.weight.device),
    }
    return functools.partial(write_up, about, trace, sentences, references, with_text)


def trace_path(folder: Path, policy: PolicySpec, settings: Evaluate) -> Path:
    return folder / f"{settings.split}.{policy_name(policy, settings)}.jsonl.xz"


def with_settings(trained: LoadedRun, overrides: list[str]) -> LoadedRun:
    """The run with some settings changed, of those that can still be changed after training."""
    return dataclasses.replace(trained, recipe=override_after_training(trained.recipe, overrides, trained.path))


def check_precision(settings: Evaluate, device: torch.device) -> None:
    if settings.precision == "half" and device.type != "cuda":
        raise UserError('evaluate.precision: "half" makes GPUs faster, but a CPU slower; write "single"')


def check_beam(policy: PolicySpec, settings: Evaluate) -> None:
    if settings.beam != 1 and policy.kind != "full":
        raise UserError(NO_BEAM.format(policy))


def check_evaluation(recipe: Recipe, dataset: Dataset, device: torch.device) -> None:
    """What can be known to be wrong before anything is trained."""
    settings = recipe.evaluate
    check_precision(settings, device)
    dataset.text(settings.split)
    for named in settings.policies if len(recipe.stages) > 1 else ():  # nobody waits long for the others
        policy = PolicySpec.parse(named)
        kind = policy.kind
        check_beam(policy, settings)
        if recipe.model.encoder == "bidirectional" and kind != "full":
            raise UserError(f"policy {policy}: the encoder needs the whole source; evaluate it under full only")
        if kind == "mma" and recipe.model.cross != "monotone":
            raise UserError(NO_HEADS)
        if kind == "oracle":
            policy.index_in(oracle_policies(recipe.search.intervals))
        if kind == "agent" and "agent" in recipe.stages:
            policy.index_in(agent_policies(recipe.search.intervals, recipe.agent.labels))
        elif kind == "agent" and not has_agent(model_folder(Path(recipe.run), policy)):
            raise UserError(NO_AGENT.format(policy.name, recipe.run))


def with_precision(trained: LoadedRun, settings: Evaluate) -> LoadedRun:
    """The run with model and agent in the precision that is wanted; single stays what it is."""
    check_precision(settings, trained.model.target_embedding.weight.device)
    if settings.precision == "half":
        for part in filter(None, (trained.model, trained.agent)):
            part.half()  # in place: there is one model, and policies know it
    return trained


def loader(overrides: list[str], device: str, settings: Evaluate | None = None) -> Callable[[Path], LoadedRun]:
    """Loads run folders, each of them once: several policies share a model. `settings` instead of the run's own."""

    def load(folder: Path) -> LoadedRun:
        trained = load_run(folder, pick_device(device))
        if settings is not None:
            trained = dataclasses.replace(trained, recipe=dataclasses.replace(trained.recipe, evaluate=settings))
        return with_settings(trained, overrides)

    return functools.cache(load)


@dataclasses.dataclass(frozen=True)
class Asked:
    """A policy, the model that it is for, and how to evaluate it."""

    policy: PolicySpec  # without a threshold, which is in the settings
    trained: LoadedRun
    settings: Evaluate


def find_asked(run: Path, policies: Sequence[str], load: Callable[[Path], LoadedRun]) -> tuple[Recipe, list[Asked]]:
    """A run's recipe and the policies, or those of that recipe if none is named."""
    # Of a run whose translator is another's there is only the fine-tuned one.
    run = run if (run / "recipe.json").is_file() or not (run / SEARCH).is_dir() else run / SEARCH
    recipe = load(run).recipe
    asked: dict[PolicySpec, Asked] = {}  # one that is named twice, once
    for named in policies or recipe.evaluate.policies:
        policy = PolicySpec.parse(named)
        trained = load(model_folder(run, policy))  # whose recipe says at which probability its agent WRITEs
        usual = trained.recipe.evaluate.threshold
        policy = policy.with_default_threshold(usual)
        settings = dataclasses.replace(
            recipe.evaluate, threshold=usual if policy.threshold is None else policy.threshold
        )
        asked.setdefault(policy, Asked(dataclasses.replace(policy, threshold=None), trained, settings))
    return recipe, list(asked.values())


def evaluate_run(
    run: Path,
    policies: Sequence[str],
    out: Path | None,
    with_text: bool,
    overrides: list[str],
    device: str,
    settings: Evaluate | None = None,
) -> list[Record]:
    """Evaluate a run under each policy; the run's own recipe says what is not given."""
    recipe, asked = find_asked(run, policies, loader(overrides, device, settings))
    dataset = Dataset.open(Path(recipe.data.dataset))
    dataset.require_languages("data.dataset", run, recipe.data)
    chosen = []  # all of them first: a mistyped name must not cost the time of those before it
    for one in asked:
        check_beam(one.policy, one.settings)
        trained = with_precision(one.trained, one.settings)
        split = dataset.split(one.settings.split)
        if one.policy.kind == "oracle":
            dataset.require_units("data.dataset", trained.path)  # its reads are found on the dataset's own numbers
        chosen.append((trained, policy_for(trained, one.policy, one.settings, split), one.settings))
    folder = out or run / "evaluations"
    traces = [trace_path(folder, one.policy, one.settings) for one in asked]
    require_same_text(traces, dataset, recipe.evaluate.split)
    if out is not None or overrides:  # else they are the run's own, and what was trained anew is measured anew
        require_same_runs((trace, one.policy, one.trained.recipe) for trace, one in zip(traces, asked, strict=True))
    works = (evaluate(trained, dataset, one, settings, folder, with_text) for trained, one, settings in chosen)
    return run_in_workers(works, worker_count() if len(chosen) > 1 and pick_device(device).type == "cuda" else 0)
