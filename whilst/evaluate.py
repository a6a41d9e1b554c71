"""From a trained model and a text to a trace and its record: what was written, when, and how good it is."""

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from whilst.beam import beam_search
from whilst.checkpoint import Trained, load_run
from whilst.config import override, to_table
from whilst.console import track
from whilst.dataset import Dataset
from whilst.decode import Limits, Output, translate
from whilst.errors import UserError
from whilst.files import sha256_lines
from whilst.metrics import score
from whilst.policy import Policy, policy
from whilst.processes import describe, pick_device, versions
from whilst.scoring import Record, record_path, write_record
from whilst.settings import Evaluate
from whilst.trace import Sentence, write_trace
from whilst.vocab import EOS, Language


def words_with_times(output: Output, target: Language) -> Iterator[tuple[str, int, float]]:
    """The words of a translation, each with the reads and the time at which it was whole."""
    buffer = target.word_buffer()
    # One entry more in reads and times than in units: the end mark's.
    for unit, reads, ms in zip(output.units, output.reads, output.times, strict=False):
        for word in buffer.feed(unit):
            yield word, reads, ms
    # A word whose end only the end mark shows is whole when that is written.
    for word in buffer.flush():
        yield word, output.reads[-1], output.times[-1]


def to_sentence(index: int, source: str, reference: str, output: Output, trained: Trained) -> Sentence:
    """What happened in one sentence, in words and in units."""
    words = source.split()
    units, word_of_unit = trained.source.encode(words)
    written = list(words_with_times(output, trained.target))
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


def translate_lines(trained: Trained, lines: Sequence[str], policy: Policy, settings: Evaluate) -> list[Output]:
    """Translate cleaned lines; beam search where the settings ask for it."""
    limits = Limits(settings.max_ratio, settings.max_extra)
    sources = [[*trained.source.encode(line.split())[0], EOS] for line in lines]
    if settings.beam == 1:
        return translate(trained.model, sources, policy, limits, settings.batch)
    if policy.name != "full":
        raise UserError(f"evaluate.beam: a beam takes words back, so it is for full only, not {policy.name}")
    size = max(1, settings.batch // settings.beam)
    outputs: list[Output] = []
    for start in track(range(0, len(sources), size), "translating", "batches"):
        outputs += beam_search(trained.model, sources[start : start + size], settings.beam, limits)
    return outputs


def evaluate(
    trained: Trained, dataset: Dataset, chosen: Policy, settings: Evaluate, folder: Path, with_text: bool
) -> Record:
    """Translate a split and write `folder/SPLIT.POLICY.jsonl.xz` and its record beside it."""
    sources, references = dataset.text(settings.split)
    began = time.perf_counter()
    outputs = translate_lines(trained, sources, chosen, settings)
    seconds = time.perf_counter() - began
    sentences = [
        to_sentence(index, source, reference, output, trained)
        for index, (source, reference, output) in enumerate(zip(sources, references, outputs, strict=True))
    ]
    beam = f".beam-{settings.beam}" if settings.beam > 1 else ""
    trace = folder / f"{settings.split}.{chosen.name}{beam}.jsonl.xz"
    write_trace(trace, sentences, with_text)
    recipe = trained.recipe
    record = Record(
        system=system_name(trained),
        policy=chosen.name,
        pair=pair_name(trained),
        split=settings.split,
        scores=score(sentences, references),
        trace=trace.name,
        source_sha256=sha256_lines(sources),
        reference_sha256=sha256_lines(references),
        settings=to_table(recipe) | {"evaluate": to_table(settings)},
        model_sha256=trained.checksum,
        command=" ".join(["whilst", *sys.argv[1:]]),
        seconds=round(seconds, 2),
        device=describe(trained.model.target_embedding.weight.device),
        versions=versions(),
    )
    write_record(record_path(trace), record)
    return record


def system_name(trained: Trained) -> str:
    """The name of what was trained, as reports know it."""
    objective = trained.recipe.objective
    return "full-sentence" if objective.name == "full" else objective.name


def pair_name(trained: Trained) -> str:
    """Such as iwslt15.en-vi."""
    data = trained.recipe.data
    return f"{data.corpus or Path(data.dataset).name}.{data.source}-{data.target}"


def evaluate_run(
    run: Path, policies: Sequence[str], out: Path | None, with_text: bool, overrides: list[str], device: str
) -> list[Record]:
    """Evaluate a run under each policy; the run's own recipe says what is not given."""
    trained = load_run(run, pick_device(device))
    recipe = override(trained.recipe, overrides)
    chosen = [policy(name) for name in policies or recipe.evaluate.policies]
    dataset = Dataset.open(Path(recipe.data.dataset))
    folder = out or run / "evaluations"
    return [evaluate(trained, dataset, one, recipe.evaluate, folder, with_text) for one in chosen]
