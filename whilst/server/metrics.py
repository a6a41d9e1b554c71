"""What a server has done, counted, in Prometheus's text format. Any thread may count.

Several worker processes answer on one port, and a scrape reaches one of them: each leaves its counts in a folder
now and then, and whoever is asked tells all of them, with the process as a label.
"""

import json
import math
import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from whilst.core.files import write_json
from whilst.live.session import Operation

FAMILIES = {  # name -> (type, help)
    "whilst_sessions": ("gauge", "Sessions now."),
    "whilst_sessions_total": ("counter", "Sessions begun, by kind."),
    "whilst_source_words_total": ("counter", "Source words translated."),
    "whilst_errors_total": ("counter", "Errors told to clients, by code."),
    "whilst_steps_total": ("counter", "Calls of the model, by kind."),
    "whilst_step_rows_total": ("counter", "Sessions that took part in them: divided by the calls, the batch size."),
    "whilst_step_seconds_total": ("counter", "Time that they took."),
    "whilst_message_seconds": ("histogram", "From a message's arrival until all its words had been read."),
    "whilst_resident_bytes": ("gauge", "Memory of the process."),
}
BUCKETS = 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0
FRESH = 10.0  # seconds: counts that are older are those of a process that has ended

Sample = tuple[str, str, float]  # name, labels, value


def resident_bytes(process: int | str = "self") -> int:
    """Memory of a process; 0 where the system does not say."""
    try:
        pages = Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


@dataclass
class Metrics:
    folder: Path | None = None  # shared by the worker processes
    _values: dict[tuple[str, str], float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def _add(self, name: str, amount: float = 1, labels: str = "") -> None:
        with self._lock:
            self._values[name, labels] = self._values.get((name, labels), 0) + amount

    def count_session(self, kind: str) -> None:
        self._add("whilst_sessions")
        self._add("whilst_sessions_total", labels=f'kind="{kind}"')

    def count_session_end(self) -> None:
        self._add("whilst_sessions", -1)

    def count_error(self, code: str) -> None:
        self._add("whilst_errors_total", labels=f'code="{code}"')

    def count_operation(self, operation: Operation, rows: int, seconds: float) -> None:
        labels = f'step="{operation.name.lower()}"'
        self._add("whilst_steps_total", 1, labels)
        self._add("whilst_step_rows_total", rows, labels)
        self._add("whilst_step_seconds_total", seconds, labels)

    def count_message(self, words: int, seconds: float) -> None:
        """A client message has been processed."""
        self._add("whilst_source_words_total", words)
        for bound in (*BUCKETS, math.inf):
            name = "+Inf" if bound == math.inf else f"{bound:g}"
            self._add("whilst_message_seconds_bucket", float(seconds <= bound), f'le="{name}"')
        self._add("whilst_message_seconds_sum", seconds)
        self._add("whilst_message_seconds_count")

    def samples(self) -> list[Sample]:
        with self._lock:
            mine = [(name, labels, value) for (name, labels), value in self._values.items()]
        return [*mine, ("whilst_resident_bytes", "", float(resident_bytes()))]

    def save(self) -> None:
        """Leave the counts for the others."""
        if self.folder is not None:
            write_json(self.folder / f"{os.getpid()}.json", self.samples())

    def _all(self) -> dict[int, list[Sample]]:
        """By process."""
        found = {os.getpid(): self.samples()}
        for path in self.folder.glob("*.json") if self.folder else ():
            if int(path.stem) not in found and time.time() - path.stat().st_mtime < FRESH:
                found[int(path.stem)] = [tuple(sample) for sample in json.loads(path.read_text(encoding="utf-8"))]
        return found

    def render(self) -> str:
        lines: list[str] = []
        everyone = self._all()
        for family, (kind, about) in FAMILIES.items():
            lines += [f"# HELP {family} {about}", f"# TYPE {family} {kind}"]
            for process, samples in sorted(everyone.items()):
                for name, labels, value in samples:
                    if name == family or (kind == "histogram" and name.rpartition("_")[0] == family):
                        who = f'process="{process}"'
                        lines.append(f"{name}{{{', '.join(filter(None, (who, labels)))}}} {value:.10g}")
        return "\n".join(lines) + "\n"
