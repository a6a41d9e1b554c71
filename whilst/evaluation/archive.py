"""The traces of many evaluations in one compressed archive, `traces.tar.xz`, beside their records, `records.jsonl`.

Together, traces compress to a third. A member has the name of its record, such as multi-path/test.wait-3.jsonl. It
has no elapsed times, since nothing is scored from them.
"""

import io
import lzma
import tarfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from whilst.core.errors import UserError
from whilst.core.files import writing
from whilst.data.text import split_lines
from whilst.evaluation.record import (
    ARCHIVED,
    Record,
    Rescored,
    read_archived,
    records_in,
    rescore_sentences,
    trace_of,
    write_archived,
)
from whilst.evaluation.trace import parse_trace, read_trace, to_line

TRACES = "traces.tar.xz"
_SUFFIX = ".jsonl"
# A window of 64 MiB holds the traces of neighbours; lc and pb suit text.
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0}]


def is_archived(trace: Path) -> bool:
    """Whether a path is an archive or a member, such as results/X/traces.tar.xz/multi-path/test.wait-3.jsonl."""
    return TRACES in trace.parts


def rescore_archive(trace: Path, source: Path | None, reference: Path | None) -> Iterator[tuple[str, Rescored]]:
    """Score all traces of an archive again, or the one member that the path names."""
    place = trace.parts.index(TRACES) + 1
    archive, member = Path(*trace.parts[:place]), "/".join(trace.parts[place:])
    records = read_archived(archive.parent)
    names = {f"{name}{_SUFFIX}": name for name in records}
    if member and member not in names:
        raise UserError(f"{trace}: no such trace in the archive; {archive.with_name(ARCHIVED)} names them")
    for name, text in _members(archive, [member] if member else names):
        record = archive.parent / f"{names[name]}.json"
        where = f"{archive}/{name}"
        sentences = parse_trace(split_lines(text, where), where)
        yield names[name], rescore_sentences(sentences, records[names[name]], record, source, reference)


def pack(folder: Path) -> int:
    """Move the records and traces under a folder into its archive, by rising AL; returns how many it has then."""
    records, texts = read_archived(folder), dict[str, bytes]()
    if records:
        texts = dict(_members(folder / TRACES))
    loose = []
    for path, record in records_in(folder).items():
        name = path.relative_to(folder).with_suffix("").as_posix()
        if (trace := trace_of(path)) is not None:
            sentences = [replace(sentence, elapsed=()) for sentence in read_trace(trace)]
            texts[name + _SUFFIX] = "".join(f"{to_line(one, True)}\n" for one in sentences).encode()
            records[name] = record
            loose += [path, trace]
    if not records:
        raise UserError(f"{folder}: no evaluation in this folder; run `whilst evaluate` first")
    _write(folder / TRACES, texts, records)
    write_archived(folder, records)
    for path in loose:
        path.unlink()
    return len(records)


def _members(archive: Path, names: Collection[str] = ()) -> Iterator[tuple[str, bytes]]:
    """The files of an archive in its order; of these names, if any are given."""
    try:
        with tarfile.open(archive, "r|xz") as tar:
            for info in tar:
                file = tar.extractfile(info)
                if file is not None and (not names or info.name in names):
                    yield info.name, file.read()
    except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
        raise UserError(f"{archive}: cannot be read ({error})") from None


def _write(archive: Path, texts: Mapping[str, bytes], records: Mapping[str, Record]) -> None:
    """Neighbours by AL have much in common, so they compress well. The bytes are reproducible."""

    def order(name: str) -> tuple[float, str]:
        record = records.get(name.removesuffix(_SUFFIX))
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
