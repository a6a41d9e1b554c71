"""What the machine itself can do, to compare the speed of training and decoding with."""

import statistics
from collections.abc import Callable
from pathlib import Path

import torch

from whilst.core.console import progress_bar
from whilst.core.distributed import pick_device
from whilst.research.bench.common import Figures, clock, print_figures

REPEATS = 10
LAUNCHES = 1000  # of a kernel that adds 1
# tokens x in x out: a large product, and those of the paper's model
LARGE = (8192, 8192, 8192)
MODEL = {"feed-forward": (16384, 512, 1024), "attention": (16384, 512, 1536), "output": (16384, 512, 7712)}


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """The median of several times."""
    work()  # libraries choose their algorithms
    times = []
    for _ in range(REPEATS):
        began = clock(device)
        work()
        times.append(clock(device) - began)
    return statistics.median(times)


def products(shape: tuple[int, int, int], device: torch.device, kind: torch.dtype) -> float:
    """TFLOP/s of a matrix product, repeated so that the launch does not count."""
    rows, inner, columns = shape
    left, right = (torch.randn(size, device=device, dtype=kind) for size in ((rows, inner), (inner, columns)))
    count = max(1, 8192**3 // (rows * inner * columns)) if device.type == "cuda" else 1

    def work() -> None:
        for _ in range(count):
            left @ right

    return 2 * rows * inner * columns * count / seconds(work, device) / 1e12


def limits_bench(name: str, scale: int, out: Path | None) -> None:
    """`scale` divides the sizes, for slow machines."""
    device = pick_device(name)
    kind = torch.bfloat16 if device.type == "cuda" else torch.float32
    figures: Figures = {"type": str(kind).removeprefix("torch.")}
    for what, shape in progress_bar({"large": LARGE, **MODEL}.items(), "measuring", "products"):
        rows, inner, columns = (max(1, size // scale) for size in shape)
        title = f"{what} product, {rows:,} x {inner:,} x {columns:,}: TFLOP/s"
        figures[title] = products((rows, inner, columns), device, kind)
    block = torch.zeros(2**30 // scale, device=device, dtype=torch.uint8)
    other = torch.empty_like(block)
    figures["copy: GB/s, read and written"] = 2 * len(block) / seconds(lambda: other.copy_(block), device) / 1e9
    one = torch.zeros(1, device=device)

    def launches() -> None:
        for _ in range(LAUNCHES):
            one.add_(1)

    figures["launch of a kernel: µs"] = seconds(launches, device) / LAUNCHES * 1e6
    print_figures("limits", figures, device, out)
