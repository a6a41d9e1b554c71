"""Where the time of an update goes: the kernels of a GPU, or the operators of a CPU, by the time they take."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from rich.table import Table
from torch.profiler import ProfilerActivity, profile

from whilst.core.console import console

# What a kernel does, by the first of these that its name has in it.
KINDS = {
    "attention": ("flex_attention", "fmha"),
    "softmax and loss": ("softmax",),
    "products of matrices": ("nvjet", "gemm", "splitk", "cutlass"),
    "cells of an LSTM": ("rnn", "lstm"),
    "optimizer and average": ("multi_tensor",),
    "norms, with the sums before them": ("layer_norm", "gammabeta"),
    "random bits": ("random", "dropout_kernel"),
    "copies and zeros": ("memcpy", "memset"),
}
REST = "everything else"
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


def kind_of(kernel: str) -> str:
    name = kernel.lower()
    return next((kind for kind, parts in KINDS.items() if any(part in name for part in parts)), REST)


def by_kind(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same, summed by what the kernels do."""
    sums: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for row in rows:
        sums[kind_of(row["kernel"])][0] += row["ms"]
        sums[kind_of(row["kernel"])][1] += row["calls"]
    found = [{"kernel": kind, "ms": ms, "calls": calls} for kind, (ms, calls) in sums.items()]
    return sorted(found, key=lambda row: -float(row["ms"]))


def show_kernels(rows: list[dict[str, Any]]) -> None:
    """The longest, and all of them by what they do."""
    total = sum(row["ms"] for row in rows)
    show_rows(rows[:SHOWN], total, f"the longest of {len(rows)}; {total:.1f} ms in all")
    show_rows(by_kind(rows), total, "all of them, by what they do")


def show_rows(rows: list[dict[str, Any]], total: float, title: str) -> None:
    table = Table("kernel", "calls", "ms", "share", title=title)
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        name = row["kernel"] if len(row["kernel"]) <= NAME else row["kernel"][: NAME - 1] + "…"
        table.add_row(name, f"{row['calls']:,.0f}", f"{row['ms']:.3f}", f"{row['ms'] / total:.1%}")
    console.print(table)
