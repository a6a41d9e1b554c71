"""Evaluate an exported run on a test set, one sentence at a time and word by word, as `whilst live` translates."""

import dataclasses
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from whilst.core.console import console, notes, progress_bar
from whilst.core.policy_spec import LATENCIES, PolicySpec, distinct
from whilst.core.provenance import provenance
from whilst.data.dataset import Dataset
from whilst.data.sentences import never_ends
from whilst.data.text import cleaner, read_pairs
from whilst.data.vocabulary import EOS
from whilst.engine.runtime import Exported, load_exported
from whilst.evaluation.metrics import score
from whilst.evaluation.record import Record, header, require_replaceable, trace_path, write_evaluation
from whilst.evaluation.tables import Grid, figure
from whilst.evaluation.trace import Sentence, write_trace
from whilst.live.loading import Model, ModelOptions, open_exported, open_model
from whilst.live.session import Backend, Operation, Request, Session, TextPipeline, Word
from whilst.model.lags import at_lag
from whilst.model.run_folder import override_after_training

TEXT_SCORES = (
    *(("AL word", "al_word"), ("LAAL", "laal"), ("AL CA", "al_ca"), ("LAAL CA", "laal_ca"), ("DAL", "dal")),
    *(("sacreBLEU", "sacrebleu"), ("chrF", "chrf")),
)


class RecordingSession(Session):
    """Also records each written unit, with the number of source units read before it. Both include end marks."""

    def __init__(self, backend: Backend, text: TextPipeline) -> None:
        super().__init__(backend, text)
        self.writes: list[tuple[int, int]] = []

    def run(self, request: Request) -> int:
        result = super().run(request)
        if request.operation is Operation.WRITE:
            self.writes.append((result, self.state.sentences[0].read))
        return result


def whole_lines(text: TextPipeline, lines: Sequence[str]) -> TextPipeline:
    """A pipeline for cleaned lines: each line is one sentence, however long it is."""
    longest = max((len(text.source.encode(line.split())) for line in lines), default=0)
    # Twice the length, since close to the limit a comma ends a sentence.
    return dataclasses.replace(text, clean=str, max_units=2 * longest + 2, ends_sentence=never_ends, truecase=None)


def translate_live(
    backend: Backend, text: TextPipeline, sources: Sequence[str], references: Sequence[str]
) -> Iterator[Sentence]:
    """Translate each line. Times count from its first word; all words are available at once."""
    text = whole_lines(text, sources)
    session = RecordingSession(backend, text)
    for index, (source, reference) in enumerate(zip(sources, references, strict=True)):
        began = time.perf_counter()
        session.writes.clear()
        words: list[tuple[str, int, float]] = []
        for word in [*source.split(), None]:
            events = session.finish() if word is None else session.feed(word)
            ms = 1000 * (time.perf_counter() - began)
            words += [(event.text, event.delay, ms) for event in events if isinstance(event, Word)]
        reads = [read for unit, read in session.writes if unit != EOS]
        units = len(text.source.encode(source.split()))
        yield Sentence.of(index, (source, reference), words, reads, units)


def evaluate_exported(
    folder: Path,
    policies: Sequence[str],
    precision: str,
    out: Path | None,
    with_text: bool,
    overrides: list[str],
    device: str,
) -> list[Record]:
    """Evaluate what `whilst export` wrote. Defaults come from its recipe."""
    exported = load_exported(folder, precision)
    # "search" cannot change either: an export has only the oracles of its own search
    recipe = override_after_training(exported.recipe, overrides, folder, "search")
    dataset = Dataset.open(Path(recipe.data.dataset))
    dataset.require_languages("data.dataset", folder, recipe.data)
    policies_and_notes = [at_lag(folder, PolicySpec.parse(name)) for name in policies or recipe.evaluate.policies]
    for note in filter(None, (note for _, note in policies_and_notes)):
        notes.print(note)
    jobs = []  # opened before any translation, so that an error in the last one costs no time
    for policy in distinct([str(policy) for policy, _ in policies_and_notes], recipe.evaluate.threshold):
        threshold = policy.with_default_threshold(recipe.evaluate.threshold).threshold
        sets = overrides if threshold is None else [*overrides, f"evaluate.threshold={threshold}"]
        opened = open_exported(
            exported, ModelOptions(str(folder), policy.name, "onnx", precision, tuple(sets), device)
        )
        trace_folder = out or folder / "evaluations"
        jobs.append((opened, trace_path(trace_folder, opened.policy, opened.recipe.evaluate, exported.precision)))
    planned = ((trace, opened.policy, opened.recipe) for opened, trace in jobs)
    require_replaceable(planned, dataset, is_own=out is None)
    return [evaluate_one(opened, exported, dataset, trace, with_text) for opened, trace in jobs]


def evaluate_one(opened: Model, exported: Exported, dataset: Dataset, trace: Path, with_text: bool) -> Record:
    """Translate and score a split under one policy."""
    recipe = opened.recipe
    sources, references = dataset.text(recipe.evaluate.split)
    began = time.perf_counter()
    translations = translate_live(opened.backend(), opened.text, sources, references)
    sentences = list(progress_bar(translations, "translating", "sentences", len(sources)))
    description = {
        **header(recipe, opened.policy, dataset, exported.path, exported.precision),
        "model_sha256": exported.weights,
        "seconds": round(time.perf_counter() - began, 2),
        **provenance(f"CPU ({opened.engine}, 1 thread, one by one)"),
    }
    return write_evaluation(description, trace, sentences, with_text)


def translate_exported(options: ModelOptions, file: Path | None, show: bool) -> None:
    """The command `whilst translate` for an export."""
    from whilst.evaluation.evaluate import lines_of, print_translations  # needs PyTorch

    model = open_model(options)
    if model.note:
        notes.print(model.note)
    lines = [model.text.clean(line) for line in lines_of(file)]
    sources = list(filter(None, lines))
    print_translations(lines, iter(model.translate(sources, options.latency) if sources else ()), show)


def evaluate_text(
    options: ModelOptions, policies: Sequence[str], source: Path, reference: Path, out: Path | None
) -> None:
    """Print the scores of a model on a text under each policy or latency; with `out` also write the traces."""
    models = {}  # opened before any translation, so that an error in the last one costs no time
    for name in policies or LATENCIES:
        models[name] = open_model(dataclasses.replace(options, latency=name))
    sources, references = read_pairs((source, reference))
    rows = []
    for name, model in models.items():
        cleaned = list(map(cleaner(model.recipe.data, model.languages[1]), references))
        sentences = model.translate(sources, name, cleaned)
        if out is not None:
            write_trace(out / f"{source.stem}.{name}.jsonl.xz", sentences, with_text=True)
        scores = score(sentences).to_table()
        rows.append([str(model.policy), *(figure(scores[column]) for _, column in TEXT_SCORES)])
    console.print(Grid(("policy", *(heading for heading, _ in TEXT_SCORES)), rows).to_terminal())
