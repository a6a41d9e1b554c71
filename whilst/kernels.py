"""Where the time of an update goes: the kernels of a GPU, or the operators of a CPU, by the time they take."""

from collections.abc import Callable
from typing import Any

import torch
from rich.table import Table
from torch.profiler import ProfilerActivity, profile

from whilst.console import console

SHOWN = 15
NAME = 60  # characters of a kernel's name on the screen; the file has all of them


def profiled(work: Callable[[], object], times: int, device: torch.device) -> list[dict[str, Any]]:
    """Milliseconds and calls of everything that ran, for one of so many repetitions, longest first."""
    gpu = device.type == "cuda"
    with profile(activities=[ProfilerActivity.CUDA if gpu else ProfilerActivity.CPU]) as found:
        for _ in range(times):
            work()
        if gpu:
            torch.cuda.synchronize(device)
    rows = [
        {
            "kernel": event.key,
            "ms": (event.self_device_time_total if gpu else event.self_cpu_time_total) / 1000 / times,
            "calls": event.count / times,
        }
        for event in found.key_averages()
    ]
    return sorted((row for row in rows if row["ms"] > 0), key=lambda row: -float(row["ms"]))


def show_kernels(rows: list[dict[str, Any]]) -> None:
    total = sum(row["ms"] for row in rows)
    table = Table("kernel", "calls", "ms", "share", title=f"the longest of {len(rows)}; {total:.1f} ms in all")
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows[:SHOWN]:
        name = row["kernel"] if len(row["kernel"]) <= NAME else row["kernel"][: NAME - 1] + "…"
        table.add_row(name, f"{row['calls']:,.0f}", f"{row['ms']:.3f}", f"{row['ms'] / total:.1%}")
    console.print(table)
