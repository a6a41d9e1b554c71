"""What a run's evaluations hold already, just as it would be measured now: a killed one goes on where it was."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from whilst.core.errors import UserError
from whilst.core.files import sha256_lines
from whilst.core.settings import Evaluate
from whilst.data.dataset import Dataset
from whilst.evaluation.evaluate import Asked, find_asked, loader, trace_path
from whilst.evaluation.identity import agent_checksum, settings_table, system_name
from whilst.evaluation.record import Record, read_record, record_path
from whilst.evaluation.seeds import decisive
from whilst.evaluation.trace import read_trace


def measured_already(
    run: Path, policies: Sequence[str], with_text: bool, settings: Evaluate | None = None
) -> dict[str, Record]:
    """Of these policies those whose record and trace lie in the run, just as they would be made now."""
    folder = run / "evaluations"
    if not folder.is_dir():
        return {}
    recipe, asked = find_asked(run, policies, loader([], "cpu", settings))
    dataset = Dataset.open(Path(recipe.data.dataset))
    found = [find_measured(one, dataset, folder, with_text) for one in asked]
    return {name: record for name, record in zip(policies, found, strict=True) if record is not None}


def find_measured(asked: Asked, dataset: Dataset, folder: Path, with_text: bool) -> Record | None:
    """The record of the same weights on the same text with the same settings, if its trace is there and whole."""
    trained, settings = asked.trained, asked.settings
    trace = trace_path(folder, asked.policy, settings)
    gone = asked.policy.kind == "agent" and trained.agent is None
    if gone or not (trace.is_file() and record_path(trace).is_file()):
        return None
    try:
        record, sentences = read_record(record_path(trace)), read_trace(trace)
    except UserError:  # damaged, or of another version: it is made anew
        return None
    sources, references = dataset.text(settings.split)
    now = dataclasses.replace(
        record,
        system=system_name(trained.recipe, asked.policy, trained.path),
        source_sha256=sha256_lines(sources),
        reference_sha256=sha256_lines(references),
        settings=decisive(settings_table(trained.recipe, settings, dataset, asked.policy)),
        model_sha256=trained.checksum,
        agent_sha256=agent_checksum(trained, asked.policy),
    )
    same = now == dataclasses.replace(record, settings=decisive(record.settings))
    whole = len(sentences) == len(sources)
    as_asked = all((sentence.source is not None) == with_text for sentence in sentences)
    return record if same and whole and as_asked else None
