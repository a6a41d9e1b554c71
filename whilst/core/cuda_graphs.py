"""Work on tensors of fixed shapes as a CUDA graph: hundreds of kernels, one launch.

Without it the GPU waits for the host: the packed layout has one shape, so one recording serves every batch. Padded
batches can have few shapes (shapes.py), with a recording for each.
"""

import contextlib
import functools
import gc
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

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


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """No garbage is collected meanwhile: a recording that is let go ends one that is being made."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


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
        if beside is None:
            gc.collect()  # recordings of an earlier stage hold memory
        self.graph = torch.cuda.CUDAGraph()
        pool = beside.graph.pool() if beside else None
        # Only this thread must not wait for the GPU meanwhile; another may be at work on the next batch.
        with uncollected(), torch.cuda.graph(self.graph, pool=pool, capture_error_mode="thread_local"):
            self.result = work(*self.inputs)

    def __call__(self, inputs: Sequence[Tensor]) -> Tensor:
        torch._foreach_copy_(self.inputs, list(inputs))
        self.graph.replay()
        return self.result


@functools.cache
def recording_stream() -> torch.cuda.Stream:
    """One for all: every stream that multiplies matrices keeps a workspace of its own."""
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]


def record(work: Callable[[], None], beside: torch.cuda.CUDAGraph | None) -> torch.cuda.CUDAGraph:
    """`work` as a graph, for recordings that are made often; `beside`: one whose memory it may share.

    `torch.cuda.graph` empties the allocator's cache first, which takes longer than all the rest.
    """
    graph, stream = torch.cuda.CUDAGraph(), recording_stream()
    stream.wait_stream(torch.cuda.current_stream())
    with uncollected(), torch.cuda.stream(stream):
        work()  # compiles, and lets every library choose its algorithms
        torch.cuda.synchronize()
        # As in `Captured`: a thread that prepares batches may pin memory meanwhile.
        graph.capture_begin(beside.pool() if beside else None, capture_error_mode="thread_local")
        try:
            work()
        finally:
            graph.capture_end()
    torch.cuda.current_stream().wait_stream(stream)
    return graph


def place_of(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


Get = Callable[[], list[Tensor]]
Put = Callable[[list[Tensor]], None]


def move_on(step: Callable[[], None], get: Get, put: Put, state: list[Tensor]) -> None:
    """Do the step; `state` stays the tensors in use, with what came of it."""
    step()
    old = {place_of(tensor) for tensor in state}
    by_type: defaultdict[torch.dtype, list[tuple[Tensor, Tensor]]] = defaultdict(list)
    for mine, new in zip(state, get(), strict=True):
        if new is not mine:
            # What is new may be an old part of the state under another name.
            by_type[mine.dtype].append((mine, new.clone() if place_of(new) in old else new))
    for pairs in by_type.values():  # in one kernel each
        torch._foreach_copy_([mine for mine, _ in pairs], [new for _, new in pairs])
    put(state)


class Repeated:
    """A step that moves some state on, recorded; every call moves it on once more. On a CPU it is just done again.

    `get` and `put` give and take the tensors that a step replaces. Between two calls they are always the same ones,
    since what came of the step is copied into them: others may change them in place, and several recordings may
    share them, and with `beside` what lies between. What the step itself changes in place it must change to the
    same when it is repeated from the same state.
    """

    def __init__(self, step: Callable[[], None], get: Get, put: Put, beside: "Repeated | None" = None) -> None:
        state = get()
        self.again: Callable[[], None] = functools.partial(move_on, step, get, put, state)
        self.graph: torch.cuda.CUDAGraph | None = None
        if state[0].device.type == "cuda":
            before = [tensor.clone() for tensor in state]
            self.graph = record(self.again, beside.graph if beside else None)
            torch._foreach_copy_(state, before)  # recording does the step once
            self.again = self.graph.replay  # and no more of whose step it was: its memory is to go when it does

    def __call__(self) -> None:
        self.again()
