"""Work on tensors of fixed shapes as a CUDA graph: hundreds of kernels, one launch.

Without it the GPU waits for the host: the packed layout has one shape, so one recording serves every batch. Padded
batches can have few shapes (shapes.py), with a recording for each.
"""

import functools
import gc
from collections import defaultdict
from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def warm_up(work: Callable[[], object]) -> None:
    """Run it aside: that compiles, and lets every library choose its algorithms."""
    aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(2):
            work()
    torch.cuda.current_stream().wait_stream(aside)


class Captured:
    """Records `work` once, on tensors of its own; a call copies new values into them and replays.

    The next call overwrites what a call returns. So does the next call of another one that shares its memory:
    with `beside` it does, which suits recordings of the same work in several shapes.
    """

    def __init__(
        self, work: Callable[..., Tensor], inputs: Sequence[Tensor], beside: "Captured | None" = None
    ) -> None:
        self.inputs = [tensor.clone() for tensor in inputs]
        warm_up(lambda: work(*self.inputs))
        self.graph = torch.cuda.CUDAGraph()
        pool = beside.graph.pool() if beside else None
        # Only this thread must not wait for the GPU meanwhile; another may be at work on the next batch.
        with torch.cuda.graph(self.graph, pool=pool, capture_error_mode="thread_local"):
            self.result = work(*self.inputs)

    def __call__(self, inputs: Sequence[Tensor]) -> Tensor:
        torch._foreach_copy_(self.inputs, list(inputs))
        self.graph.replay()
        return self.result


@functools.cache
def recording_stream() -> torch.cuda.Stream:
    """One for all: every stream that multiplies matrices keeps a workspace of its own."""
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]


def record(work: Callable[[], None]) -> torch.cuda.CUDAGraph:
    """`work` as a graph, for recordings that are made often.

    `torch.cuda.graph` collects garbage and empties the allocator's cache first, which takes longer than all the
    rest; here it is enough that nothing is collected meanwhile.
    """
    graph, stream = torch.cuda.CUDAGraph(), recording_stream()
    stream.wait_stream(torch.cuda.current_stream())
    collecting = gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.stream(stream):
            work()  # compiles, and lets every library choose its algorithms
            torch.cuda.synchronize()
            graph.capture_begin()
            try:
                work()
            finally:
                graph.capture_end()
    finally:
        if collecting:
            gc.enable()
    torch.cuda.current_stream().wait_stream(stream)
    return graph


def place_of(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


class Repeated:
    """A step that moves some state on, recorded; every call moves it on once more. On a CPU it is just done again.

    `get` and `put` give and take the tensors that a step replaces. Between two calls they are always the same ones,
    since what came of the step is copied into them: others may change them in place, and several recordings may
    share them. What the step itself changes in place it must change to the same when repeated from the same state.
    """

    def __init__(
        self, step: Callable[[], None], get: Callable[[], list[Tensor]], put: Callable[[list[Tensor]], None]
    ) -> None:
        self.step, self.get, self.put = step, get, put
        self.state = get()
        self.graph: torch.cuda.CUDAGraph | None = None
        if self.state[0].device.type == "cuda":
            before = [tensor.clone() for tensor in self.state]
            self.graph = record(self.work)
            torch._foreach_copy_(self.state, before)  # recording runs it once

    def work(self) -> None:
        self.step()
        old = {place_of(tensor) for tensor in self.state}
        by_type: defaultdict[torch.dtype, list[tuple[Tensor, Tensor]]] = defaultdict(list)
        for mine, new in zip(self.state, self.get(), strict=True):
            if new is not mine:
                # What is new may be an old part of the state under another name.
                by_type[mine.dtype].append((mine, new.clone() if place_of(new) in old else new))
        for pairs in by_type.values():  # in one kernel each
            torch._foreach_copy_([mine for mine, _ in pairs], [new for _, new in pairs])
        self.put(self.state)

    def __call__(self) -> None:
        if self.graph is None:
            self.work()
        else:
            self.graph.replay()
