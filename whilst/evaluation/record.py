"""Write and read the record of an evaluation, `NAME.json` beside the trace `NAME.jsonl.xz`; score traces again.

A record says what was measured, on which text (by checksum) and how to repeat it. Scoring again needs no model:
latency comes from the trace alone, quality from the trace and the reference text.

An archive has the records of many evaluations, `records.jsonl`, and their traces in one compressed file,
`traces.tar.xz`, which is a third of the size of single files. A member has the name of its record, such as
multi-path/test.wait-3.jsonl, and no elapsed times: computation-aware scores are only in the records.
"""

import io
import json
import lzma
import tarfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from whilst.core.config import build, flatten, from_json, to_table, values_with
from whilst.core.errors import UserError
from whilst.core.files import STDIN, parse_json, read_json, sha256_lines, write_json, write_lines, writing
from whilst.core.policy_spec import PolicySpec
from whilst.core.settings import NEUTRAL, Data, Evaluate, Recipe, Role, names_with
from whilst.data.dataset import Dataset
from whilst.data.text import cleaner, read_lines, split_lines
from whilst.evaluation.identity import Decoding, System, pair_name
from whilst.evaluation.metrics import Scores, score
from whilst.evaluation.trace import Sentence, find_problem, parse_trace, read_trace, to_archived_line, write_trace
from whilst.model.run_folder import AGENT, base_objective

FORMAT = 1
LATER_SCORES = "length", "atd", "yaal", "al_ca", "laal_ca"  # older records lack them
ARCHIVED = "records.jsonl"
TRACES = "traces.tar.xz"
_SUFFIXES = (".jsonl", ".log", ".jsonl.gz", ".jsonl.xz")  # SimulEval writes instances.log
# The preset's window of 64 MiB holds neighbouring traces; lc and pb suit text.
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0}]
_NEUTRAL, _ORIGIN = names_with(NEUTRAL), names_with(Role.ORIGIN)


@dataclass(frozen=True)
class Record:
    """One evaluation."""

    title: str  # the system for display, "system" in the file
    policy: str  # such as wait-3 or agent-1.threshold-0.4; read with `decoding`
    pair: str  # such as iwslt15.en-vi
    split: str
    scores: Scores
    trace: str  # file name, in the same folder
    source_sha256: str  # of the cleaned lines
    reference_sha256: str
    settings: dict[str, Any]  # the whole recipe
    model_sha256: str
    command: str
    seconds: float  # decoding
    device: str
    versions: dict[str, str]
    agent_sha256: str = ""  # empty if no agent decides, and in older records
    # dataset_sha256, of the training data, and began_with, the objective of the run that training started from.
    # Empty in older records.
    origin: dict[str, str] = field(default_factory=dict)
    path: Path | None = field(default=None, compare=False)  # the file that it was read from

    @cached_property
    def recipe(self) -> Recipe | None:
        """None if the settings are not those of a recipe, as in records of other toolkits."""
        try:
            return build(Recipe, self.settings)
        except UserError:
            return None

    @cached_property
    def decoding(self) -> Decoding:
        return Decoding.parse(self.policy)

    @cached_property
    def system(self) -> System:
        if self.recipe is None:
            return System(self.title)
        return System.of(self.recipe, self.decoding.policy, self.origin.get("began_with", ""))

    @cached_property
    def deciding(self) -> dict[str, Any]:
        """The settings that can change a result, by dotted name; those that name another run as true or false."""
        table = flatten(self.settings if self.recipe is None else to_table(self.recipe))
        return {name: bool(table[name]) if name in _ORIGIN else table[name] for name in table.keys() - _NEUTRAL}


def header(recipe: Recipe, policy: PolicySpec, dataset: Dataset, run: Path, engine: str = "") -> dict[str, Any]:
    """The fields of a record that follow from recipe and dataset. `engine`: the precision of an exported run."""
    settings, run_origin = recipe.evaluate, origin(run, recipe)
    if not policy.about.can_end_early:
        settings = replace(settings, ending=Evaluate().ending)  # has no effect on this policy
    source, reference = map(sha256_lines, dataset.text(settings.split))
    return {
        "title": str(System.of(recipe, policy, run_origin.get("began_with", ""))),
        "policy": str(Decoding.of(policy, settings, engine)),
        "pair": pair_name(recipe.data),
        "split": settings.split,
        "source_sha256": source,
        "reference_sha256": reference,
        "settings": to_table(replace(recipe, evaluate=settings, data=dataset.cleaning_settings(recipe.data))),
        "origin": run_origin,
    }


def origin(run: Path, recipe: Recipe) -> dict[str, str]:
    """What is known of the origin of a run's weights, as in `Record.origin`."""
    summaries = (run / "summary.json", run / AGENT / "summary.json")  # a copied translator has only its agent's
    summary: Any = next((read_json(path) for path in summaries if path.is_file()), None)
    summary = summary if isinstance(summary, dict) else {}
    found = {"dataset_sha256": str(summary.get("dataset_sha256", "")), "began_with": base_objective(recipe, run)}
    return {name: value for name, value in found.items() if value}


def trace_path(folder: Path, policy: PolicySpec, settings: Evaluate, engine: str = "") -> Path:
    """The trace of an evaluation in this folder; `engine` as in `header`."""
    return folder / f"{settings.split}.{Decoding.of(policy, settings, engine)}{_SUFFIXES[-1]}"


def record_path(trace: Path) -> Path:
    """NAME.json for NAME.jsonl, NAME.jsonl.gz or NAME.jsonl.xz; -.json for standard input."""
    if trace == STDIN:
        return Path("-.json")
    for suffix in _SUFFIXES:
        if trace.name.endswith(suffix):
            return trace.with_name(trace.name.removesuffix(suffix) + ".json")
    raise UserError(f"{trace}: a trace's name ends in {', '.join(_SUFFIXES)}")


def trace_of(record: Path) -> Path | None:
    """The trace beside a record, if there is one."""
    traces = [record.with_suffix(suffix) for suffix in _SUFFIXES]
    return next((trace for trace in traces if trace.is_file()), None)


def write_evaluation(about: dict[str, Any], trace: Path, sentences: list[Sentence], with_text: bool) -> Record:
    """Write the trace of sentences, score them and write the record. `about`: the other fields of the record."""
    write_trace(trace, sentences, with_text)
    record = Record(**about, trace=trace.name, scores=score(sentences))
    write_record(record_path(trace), record)  # last, so that a record always has its trace
    return record


def write_record(path: Path, record: Record) -> None:
    write_json(path, to_row(record))


def to_row(record: Record) -> dict[str, Any]:
    """The record as plain data for JSON."""
    names = [item.name for item in fields(record) if item.name not in ("title", "path")]
    table = {"system": record.title} | {name: getattr(record, name) for name in names}
    for name in ("agent_sha256", "origin"):
        if not table[name]:
            del table[name]
    scores = {"scores": record.scores.to_table(), "signatures": dict(record.scores.signatures)}
    return {"format": FORMAT, **table, **scores}


def read_record(path: Path) -> Record:
    return _from_row(read_json(path), str(path), path)


def _from_row(row: Any, where: str, path: Path) -> Record:
    if not isinstance(row, dict) or row.pop("format", None) != FORMAT:
        raise UserError(f"{where}: not an evaluation's record (format {FORMAT}); run `whilst evaluate` again")
    row = {"agent_sha256": "", "origin": {}, "path": None} | row
    signatures, row["title"] = row.pop("signatures", None), row.pop("system", None)
    if isinstance(scores := row.get("scores"), dict):
        table = dict.fromkeys(LATER_SCORES) | scores | {"signatures": signatures}
        row["scores"] = from_json(Scores, table, f"{where}: scores")
    return replace(from_json(Record, row, where), path=path)


def read_archived(folder: Path) -> dict[str, Record]:
    """The records in a folder's `records.jsonl` by name, such as multi-path/test.wait-3."""
    path = folder / ARCHIVED
    records: dict[str, Record] = {}
    for number, line in enumerate(read_lines(path) if path.is_file() else [], start=1):
        try:
            row = parse_json(line)
            name = row.pop("name")
            if isinstance(row["settings"], str):  # the name of an earlier record with the same settings
                row["settings"] = records[row["settings"]].settings
        except (ValueError, TypeError, KeyError, AttributeError):
            raise UserError(f"{path}:{number}: damaged; restore the file") from None
        records[name] = _from_row(row, f"{path}:{number}", folder / f"{name}.json")
    return records


def write_archived(folder: Path, records: Mapping[str, Record]) -> None:
    first: dict[str, str] = {}  # settings -> name of the first record that has them
    lines = []
    for name, record in sorted(records.items()):
        row = {"name": name, **to_row(record)}
        same = first.setdefault(json.dumps(row["settings"], sort_keys=True), name)
        row["settings"] = row["settings"] if same == name else same
        lines.append(json.dumps(row, ensure_ascii=False, separators=(",", ":")))
    write_lines(folder / ARCHIVED, lines)


ELSEWHERE = "choose another folder with --out, or remove this file"


def require_replaceable(planned: Iterable[tuple[Path, PolicySpec, Recipe]], dataset: Dataset, is_own: bool) -> None:
    """Refuse to overwrite evaluations of another text, of another run, or of an oracle of another search.

    `planned`: trace, policy and recipe of each evaluation. `is_own`: in the run's folder, only texts are compared.
    """
    for trace, policy, recipe in planned:
        path = record_path(trace)
        try:
            record = read_record(path)
        except (UserError, OSError):  # absent, damaged, or of another version
            continue
        run, search = record.settings.get("run"), record.settings.get("search", {})
        now = values_with(recipe.search, Role.READS)
        if record.reference_sha256 != sha256_lines(dataset.text(recipe.evaluate.split)[1]):
            raise UserError(f"{path}: is an evaluation of another text; {ELSEWHERE}")
        if not is_own and run != recipe.run:
            raise UserError(f"{path}: is an evaluation of {run}; {ELSEWHERE}")
        is_same_search = all(search.get(name) == value for name, value in now.items())
        if not is_own and policy.kind == "oracle" and not is_same_search:
            raise UserError(f"{path}: is an oracle of another search; {ELSEWHERE}")


def records_in(folder: Path) -> dict[Path, Record]:
    """The records under a folder that have a trace, by path. Archived ones have the path that they had before."""
    found = {path: read_record(path) for path in folder.rglob("*.json") if trace_of(path)}
    for file in folder.rglob(ARCHIVED):
        for name, record in read_archived(file.parent).items():
            found.setdefault(file.parent / f"{name}.json", record)
    return {path: found[path] for path in sorted(found)}


def read_records(paths: list[Path]) -> list[Record]:
    """Records from files (a record or its trace) and folders (every trace in them that has a record)."""
    records: dict[Path, Record] = {}  # without duplicates
    for path in paths:
        if path.is_dir():
            found = records_in(path)
            if not found:
                raise UserError(f"{path}: no evaluation in this folder; run `whilst evaluate` first")
        elif not path.exists():
            raise UserError(f"{path}: no such file or folder; `whilst evaluate` makes evaluations")
        else:
            file = path if path.suffix == ".json" else record_path(path)
            found = {file: read_record(file)}
        records |= {file.resolve(): record for file, record in found.items()}
    return list(records.values())


@dataclass(frozen=True)
class Rescored:
    """Scores of a trace, computed again."""

    scores: Scores
    sentences: list[Sentence]  # with the text of the given files
    record: Record | None  # of the original evaluation
    notes: list[str]  # what could not be measured or checked, and what to do about it

    @property
    def early(self) -> int:
        """Sentences whose last word was written before the whole source had been read."""
        return sum(bool(item.delays) and item.delays[-1] < item.source_length for item in self.sentences)

    @property
    def differences(self) -> dict[str, tuple[float | None, float | None]]:
        """Scores that differ, as (recorded, now). Scores that are None on one side are left out."""
        if self.record is None:
            return {}
        now, then = self.scores.to_table(), self.record.scores.to_table()
        both = {name: (then[name], now[name]) for name in now if None not in (then[name], now[name])}
        return {name: (old, new) for name, (old, new) in both.items() if old != new}


def rescore(trace: Path, source: Path | None = None, reference: Path | None = None) -> Rescored:
    """Score a trace without the model. Texts are joined by sentence index and checked against the record."""
    if trace.suffix == ".json" and trace.is_file():
        raise UserError(f"{trace}: is a record; name its trace, such as {trace.stem}{_SUFFIXES[-1]}")
    sentences, path = read_trace(trace), record_path(trace)
    record = read_record(path) if path.is_file() else None
    return rescore_sentences(sentences, record, path, source, reference)


def rescore_sentences(
    sentences: list[Sentence], record: Record | None, path: Path, source: Path | None, reference: Path | None
) -> Rescored:
    """Score the sentences of a trace again. `path`: the record's, for messages."""
    notes = []
    if record is None:
        notes.append(f"no record {path.name} beside the trace: text is checked by its word counts only")
    try:  # without a record, only Unicode and spaces are normalised
        data = build(Data, record.settings.get("data", {}), "data.") if record else Data()
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    if source is not None:
        sentences = _join(sentences, "source", source, data, record)
    if reference is not None:
        sentences = _join(sentences, "reference", reference, data, record)
    scores = score(sentences)
    if scores.bleu is None:
        notes.append("no reference text: BLEU, sacreBLEU and chrF are left out; give --reference FILE")
    return Rescored(scores, sentences, record, notes)


def _join(
    sentences: list[Sentence], side: Literal["source", "reference"], file: Path, data: Data, record: Record | None
) -> list[Sentence]:
    """The sentences with the text of a file, which is checked against the record."""
    raw = read_lines(file)
    if len(raw) != len(sentences):
        raise UserError(f"{file}: has {len(raw)} lines, the trace has {len(sentences)} sentences")
    language = data.source if side == "source" else data.target
    expected = getattr(record, f"{side}_sha256", None)
    lines = list(map(cleaner(replace(data, moses=data.moses and not data.tokenised), language, True), raw))
    if data.tokenised and sha256_lines(lines) != expected:  # the file is raw
        lines = list(map(cleaner(replace(data, detokenise=False), language, True), raw))
    actual = sha256_lines(lines)
    if expected is not None and actual != expected:
        raise UserError(
            f"{file}: not the evaluated text (checksum {actual[:12]}, the record says {expected[:12]}); "
            "give the file that was evaluated"
        )
    joined = []
    for sentence in sentences:
        if sentence.index >= len(lines):
            raise UserError(f"{file}: has no line {sentence.index + 1}, which the trace translates")
        text = lines[sentence.index]
        with_text = replace(sentence, source=text) if side == "source" else replace(sentence, reference=text)
        if problem := find_problem(with_text):
            raise UserError(f"{file}:{sentence.index + 1}: {problem}; give the file that was evaluated")
        joined.append(with_text)
    return joined


def rescore_archive(trace: Path, source: Path | None, reference: Path | None) -> Iterator[tuple[str, Rescored]]:
    """Score all traces of an archive again, or only one member.

    `trace`: the archive's path, or a member's, such as results/X/traces.tar.xz/multi-path/test.wait-3.jsonl.
    """
    depth = trace.parts.index(TRACES) + 1
    archive, member = Path(*trace.parts[:depth]), "/".join(trace.parts[depth:])
    records = read_archived(archive.parent)
    names = {f"{name}{_SUFFIXES[0]}": name for name in records}
    if member and member not in names:
        raise UserError(f"{trace}: no such trace in the archive; {archive.with_name(ARCHIVED)} names them")
    for name, text in _members(archive, [member] if member else names):
        record = archive.parent / f"{names[name]}.json"
        where = f"{archive}/{name}"
        sentences = parse_trace(split_lines(text, where), where)
        yield names[name], rescore_sentences(sentences, records[names[name]], record, source, reference)


def pack(folder: Path) -> int:
    """Move the records and traces under a folder into its archive; returns how many the archive then has."""
    records, texts = read_archived(folder), dict[str, bytes]()
    if records:
        texts = dict(_members(folder / TRACES))
    loose = []
    for path, record in records_in(folder).items():
        name = path.relative_to(folder).with_suffix("").as_posix()
        if (trace := trace_of(path)) is not None:
            lines = [f"{to_archived_line(sentence)}\n" for sentence in read_trace(trace)]
            texts[name + _SUFFIXES[0]] = "".join(lines).encode()
            records[name] = record
            loose += [path, trace]
    if not records:
        raise UserError(f"{folder}: no evaluation in this folder; run `whilst evaluate` first")
    _write(folder / TRACES, texts, records)
    write_archived(folder, records)
    for path in loose:
        path.unlink()
    for path in sorted(folder.rglob("*/"), reverse=True):
        if not any(path.iterdir()):
            path.rmdir()
    return len(records)


def _members(archive: Path, names: Collection[str] = ()) -> Iterator[tuple[str, bytes]]:
    """The names and contents of an archive's files, in its order; only of `names` if there are any."""
    try:
        with tarfile.open(archive, "r|xz") as tar:
            for info in tar:
                file = tar.extractfile(info)
                if file is not None and (not names or info.name in names):
                    yield info.name, file.read()
    except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
        raise UserError(f"{archive}: cannot be read ({error})") from None


def _write(archive: Path, texts: Mapping[str, bytes], records: Mapping[str, Record]) -> None:
    """Write traces by rising AL: neighbours have much in common and compress well. The bytes are reproducible."""

    def order(name: str) -> tuple[float, str]:
        record = records.get(name.removesuffix(_SUFFIXES[0]))
        return (record.scores.al if record else 0.0), name

    with (
        writing(archive) as temporary,
        lzma.open(temporary, "wb", filters=_FILTERS) as file,
        tarfile.open(fileobj=file, mode="w|", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for name in sorted(texts, key=order):
            info = tarfile.TarInfo(name)
            info.size = len(texts[name])
            tar.addfile(info, io.BytesIO(texts[name]))
