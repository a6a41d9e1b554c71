"""How long each stage of a run took, from its data to its end: RUN/times.json."""

from pathlib import Path

from whilst.core.files import read_json, write_json

FILE = "times.json"


def stage_times(run: Path) -> dict[str, float]:
    """Seconds by stage, in the order in which they were done; none for a run that never noted any."""
    found = read_json(run / FILE) if (run / FILE).is_file() else {}
    return {str(name): float(seconds) for name, seconds in found.items()} if isinstance(found, dict) else {}


def note_time(run: Path, stage: str, seconds: float, goes_on: bool = False) -> None:
    """Seconds of a stage, which add up if it goes on where it was stopped."""
    times = stage_times(run)
    times[stage] = round(seconds + (times.get(stage, 0.0) if goes_on else 0.0), 1)
    write_json(run / FILE, times)
