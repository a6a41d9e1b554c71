"""An exported run on a test set, translated as `live` does, one sentence at a time, word by word: trace, record."""

import dataclasses
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from whilst.core.console import progress_bar
from whilst.core.files import sha256_lines
from whilst.core.policy_spec import distinct
from whilst.core.settings import Recipe
from whilst.data.dataset import Dataset
from whilst.data.sentences import never_ends
from whilst.data.vocabulary import EOS
from whilst.engine.runtime import Exported, load_exported
from whilst.evaluation.record import Record, require_same_runs, require_same_text, write_up
from whilst.evaluation.trace import Sentence
from whilst.live.loading import LiveModel, ModelOptions, open_exported
from whilst.live.session import Backend, Session, TextPipeline, Word
from whilst.model.run_folder import override_after_training


@dataclass
class Noted:
    """One sentence in units."""

    read: int = 0  # source units, the end mark counted
    units: list[int] = field(default_factory=list)  # without the end mark
    reads: list[int] = field(default_factory=list)  # before each WRITE, that of the end mark too


class Watched(Backend):
    """Backend that note what comes of them, sentence by sentence."""

    def __init__(self, steps: Backend) -> None:
        self.steps = steps
        self.sentences: list[Noted] = []

    def begin(self) -> None:
        self.steps.begin()
        self.sentences.append(Noted())

    def read(self, unit: int) -> None:
        self.steps.read(unit)
        self.sentences[-1].read += 1

    def decide(self) -> bool:
        return self.steps.decide()

    def write(self) -> int:
        unit = self.steps.write()
        noted = self.sentences[-1]
        noted.reads.append(noted.read)
        if unit != EOS:
            noted.units.append(unit)
        return unit


def whole_lines(text: TextPipeline, lines: Sequence[str]) -> TextPipeline:
    """For clean lines that are sentences, however long."""
    longest = max(len(text.source.encode(line.split())[0]) for line in lines)
    # Twice as long: a sentence that is nearly too long may end at a comma.
    return dataclasses.replace(text, clean=str, max_units=2 * longest + 2, ends_sentence=never_ends, truecase=None)


def translate_live(
    backend: Backend, text: TextPipeline, sources: Sequence[str], references: Sequence[str]
) -> Iterator[Sentence]:
    """What happens to each line. Times count from its first word, which comes at once, as do all others."""
    text = whole_lines(text, sources)
    watched = Watched(backend)
    session = Session(watched, text)
    for index, (source, reference) in enumerate(zip(sources, references, strict=True)):
        began = time.perf_counter()
        words: list[tuple[str, int, float]] = []
        for word in [*source.split(), None]:
            events = session.finish() if word is None else session.feed(word)
            ms = 1000 * (time.perf_counter() - began)
            words += [(event.text, event.delay, ms) for event in events if isinstance(event, Word)]
        noted = watched.sentences.pop() if watched.sentences else Noted()  # an empty line
        units = len(text.source.encode(source.split())[0])
        yield Sentence(
            index=index,
            prediction=" ".join(word for word, _, _ in words),
            delays=tuple(delay for _, delay, _ in words),
            elapsed=tuple(ms for _, _, ms in words),
            reads=tuple(min(reads, units) for reads, _ in zip(noted.reads, noted.units, strict=False)),
            source_length=len(source.split()),
            source_units=units,
            reference_length=len(reference.split()),
            source=source,
            reference=reference,
        )


def evaluate_exported(
    folder: Path,
    policies: Sequence[str],
    precision: str,
    out: Path | None,
    with_text: bool,
    overrides: list[str],
    device: str,
) -> list[Record]:
    """Evaluate what `whilst export` made; its own recipe says what is not given."""
    from whilst.evaluation.identity import policy_name  # needs PyTorch, which translate_live does not

    exported = load_exported(folder, precision)
    recipe = override_after_training(
        exported.recipe, overrides, folder, "search"
    )  # there are no oracles of another one
    dataset = Dataset.open(Path(recipe.data.dataset))
    dataset.require_languages("data.dataset", folder, recipe.data)
    asked = []  # all of them first: a mistyped name must not cost the time of those before it
    for policy in distinct(policies or recipe.evaluate.policies, recipe.evaluate.threshold):
        threshold = policy.with_default_threshold(recipe.evaluate.threshold).threshold
        sets = overrides if threshold is None else [*overrides, f"evaluate.threshold={threshold}"]
        opened = open_exported(
            exported, ModelOptions(str(folder), policy.name, "onnx", precision, tuple(sets), device)
        )
        asked.append((opened, override_after_training(exported.recipe, sets, folder)))
    place, split = out or folder / "evaluations", recipe.evaluate.split
    named = [f"{policy_name(opened.policy, one.evaluate)}.{exported.precision}" for opened, one in asked]
    traces = [place / f"{split}.{name}.jsonl.xz" for name in named]
    require_same_text(traces, dataset, split)
    if out is not None:
        both = zip(traces, asked, strict=True)
        require_same_runs((trace, opened.policy, one) for trace, (opened, one) in both)
    works = zip(asked, named, traces, strict=True)
    return [
        evaluate_live(opened, one, exported, dataset, name, trace, with_text)
        for (opened, one), name, trace in works
    ]


def evaluate_live(
    opened: LiveModel, recipe: Recipe, exported: Exported, dataset: Dataset, name: str, trace: Path, with_text: bool
) -> Record:
    """Translate and score a split; `name` is that of the policy with all that decides."""
    from whilst.core.distributed import command_line, versions
    from whilst.evaluation.identity import pair_name, settings_table, system_name

    split = recipe.evaluate.split
    sources, references = dataset.text(split)
    began = time.perf_counter()
    found = translate_live(opened.backend(), opened.text, sources, references)
    sentences = list(progress_bar(found, "translating", "sentences", len(sources)))
    seconds = time.perf_counter() - began
    about = {
        "system": system_name(recipe, opened.policy, exported.path),
        "policy": name,
        "pair": pair_name(recipe),
        "split": split,
        "source_sha256": sha256_lines(sources),
        "reference_sha256": sha256_lines(references),
        "settings": settings_table(recipe, recipe.evaluate, dataset, opened.policy),
        "model_sha256": exported.weights,
        "command": command_line(),
        "seconds": round(seconds, 2),
        "device": f"CPU ({opened.engine}, 1 thread, one by one)",
        "versions": versions(),
    }
    return write_up(about, trace, sentences, references, with_text)
