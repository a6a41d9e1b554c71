"""Duration of each stage of a run, in RUN/times.json."""

from pathlib import Path

from whilst.core.files import read_json, write_json

FILE = "times.json"


def read_stage_times(run: Path) -> dict[str, float]:
    """Seconds by stage, in the order in which the stages ran; empty if none were recorded."""
    found = read_json(run / FILE) if (run / FILE).is_file() else {}
    return {str(name): float(seconds) for name, seconds in found.items()} if isinstance(found, dict) else {}


def add_stage_time(run: Path, stage: str, seconds: float, resumed: bool = False) -> None:
    """Record the duration of a stage; of a resumed stage the durations add up."""
    times = read_stage_times(run)
    times[stage] = round(seconds + (times.get(stage, 0.0) if resumed else 0.0), 1)
    write_json(run / FILE, times)
