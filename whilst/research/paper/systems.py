"""The paper's systems among our curves: which curve is one of them, what it is called, and how a point is shown."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from whilst.evaluation import paper_numbers as paper
from whilst.evaluation.curves import Curve, Point, Result, seeds_of
from whilst.evaluation.paper_numbers import FULL
from whilst.evaluation.record import ARCHIVED, Record
from whilst.evaluation.tables import NONE, figure
from whilst.research.paper.markdown import bullets, details, link

NOT_RUN = "not run"
TEACHER = "+ teacher"
DIAGONAL = "multi-path, diagonal"  # our control: reads rise by J/I, without an agent
SYSTEMS = paper.SYSTEMS | {DIAGONAL: (paper.BASE, "diagonal")}
UNKNOWN = {"keep": "`<unk>`", "copy": "names of the source in their place"}


@dataclass(frozen=True)
class Collection:
    """Our curves, for a document in `folder`."""

    curves: Sequence[Curve]
    folder: Path
    shown: list[Curve] = field(default_factory=list)

    def of_system(self, system: str, changes: dict[str, str] | None = None) -> list[Curve]:
        """Curves of one of the paper's systems on any text, with exactly these changes of the paper's choices."""
        return [
            curve
            for curve in self.curves
            if (curve.system.name, curve.kind) == SYSTEMS[system]
            and curve.first.changes == (changes or {})
            and curve.first.first.split == "test"
            and not curve.first.decoding
        ]

    def of_task(self, task: str, system: str) -> list[Curve]:
        """The same on the test set of one of the paper's tasks, without changes."""
        return [curve for curve in self.of_system(system) if paper.task(curve.pair) == task]

    def made(self, curve: Curve, name: str) -> str:
        """How a curve was made, by its records. From now on it counts as shown."""
        self.shown.append(curve)
        return details(f"How it was made: {name}", bullets(_origin(curve, self.folder)))

    @property
    def left(self) -> list[Curve]:
        return [curve for curve in self.curves if not any(curve is one for one in self.shown)]


def or_none(curves: Sequence[Curve]) -> Sequence[Curve | None]:
    """The curves, or one None if there are none: for the rows that show the paper's points alone."""
    return curves or [None]


def training_text(curve: Curve) -> str:
    is_own = curve.pair == paper.task(curve.pair)
    text = "the paper's" if is_own else f"**other**: {curve.pair.rpartition('.')[0]}"
    return f"{text} {TEACHER}" if curve.settings["teacher"] else text


@dataclass(frozen=True)
class Both:
    """The paper's point and our result of one label, as far as there is one."""

    label: str
    theirs: Point | None
    result: Result | None

    @property
    def ours(self) -> Point | None:
        if self.result is None or self.result.bleu is None:
            return None
        return Point(self.label, self.result.al, self.result.bleu)

    @property
    def cells(self) -> list[str]:
        return [*paper_cells(self.theirs), *our_cells(self.result)]


def paper_cells(point: Point | None) -> list[str]:
    """The paper's AL and BLEU."""
    return [figure(point.al), figure(point.bleu)] if point else [NONE, NONE]


def our_cells(result: Result | None) -> list[str]:
    """Our AL, BLEU and number of seeds."""
    if result is None:
        return [NOT_RUN, NOT_RUN, NONE]
    return [result.shown("al"), result.shown("bleu"), str(len(result.records))]


def side_by_side(theirs: Sequence[Point], curve: Curve | None) -> list[Both]:
    """The paper's points, then those of ours whose labels it does not have."""
    points = {point.label: point for point in theirs}
    results = {result.label: result for result in curve.results} if curve else {}
    return [Both(label, points.get(label), results.get(label)) for label in dict.fromkeys([*points, *results])]


def difference(curve: Curve | None, point: Point | None, system: str) -> tuple[float | None, float | None]:
    """Our BLEU at the AL of the paper's point, minus the paper's; of full-sentence models without regard to AL."""
    if curve is None or point is None:
        return None, None
    ours = curve.first.bleu if system == FULL else curve.at(point.al)
    return ours, None if ours is None else ours - point.bleu


def _origin(curve: Curve, folder: Path) -> list[str]:
    records = [record for result in curve.results for record in result.records]
    first, settings = records[0], curve.settings
    recipes = sorted({record.settings.get("file", "") for record in records} - {""})
    seeds = sorted({"/".join(map(str, seeds_of(record))) for record in records})
    machines = sorted({f"{one.device}, torch {one.versions.get('torch', '?')}" for one in records})
    lines = [
        "recipe: " + (", ".join(link(recipe, Path(recipe), folder) for recipe in recipes) or "in the records"),
        f"started from: {_runs(records, 'start', 'random weights')}; teacher: {_runs(records, 'teacher', 'none')}",
        f"seeds: {', '.join(seeds)}" + (" (one for each stage)" if any("/" in seed for seed in seeds) else ""),
        f"machine: {'; '.join(machines)}",
        f"text: {first.pair}, {first.split}, {first.scores.sentences:,} sentences; SHA-256 of the source"
        f" `{first.source_sha256[:12]}`, of the reference `{first.reference_sha256[:12]}`",
        f"weights: SHA-256 {', '.join(f'`{sha}`' for sha in sorted({one.model_sha256[:12] for one in records}))}",
        f"BLEU: `{first.scores.signatures.get('bleu', 'no signature')}`",
        f"unknown words: {UNKNOWN[settings['evaluate.unknown']]}",
        f"end mark before the whole source is read: {settings['evaluate.ending']}",
    ]
    if "search.target" in settings:
        search = [f"{name} {settings[f'search.{name}']}" for name in ("target", "tolerance", "slope", "condition")]
        inputs = f"; agent input: {settings['agent.inputs']}" if "agent.inputs" in settings else ""
        lines.append(f"search: {', '.join(search)}{inputs}")
    lines += [f"decoded with `{command}`" for command in sorted({record.command for record in records})]
    return [*lines, "records: " + ", ".join(record_link(record, folder) for record in records)]


def _runs(records: Sequence[Record], name: str, none: str) -> str:
    """The run folders that records name as start or teacher."""
    found = sorted({record.settings.get(name, "") for record in records})
    return ", ".join(f"`{run}`" if run else none for run in found)


def record_link(record: Record, folder: Path) -> str:
    """To the record's file, or to that of the archive which it is in."""
    assert record.path is not None  # records of a folder have one
    if record.path.is_file():
        return link(record.policy, record.path, folder)
    archive = next(above / ARCHIVED for above in record.path.parents if (above / ARCHIVED).is_file())
    return link(record.path.relative_to(archive.parent).with_suffix("").as_posix(), archive, folder)
