"""Record work on tensors of fixed shapes as CUDA graphs, each of which launches hundreds of kernels at once.

Without graphs, the GPU waits for the host to launch kernels. Packed batches have one shape, so one graph serves all
of them; boxed batches (data/batches.py) have a few shapes, with one graph for each.
"""

import contextlib
import functools
import gc
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor


def warm_up(work: Callable[[], object]) -> None:
    """Run `work` twice on a side stream, so that kernels are compiled and libraries have chosen algorithms."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            work()
    torch.cuda.current_stream().wait_stream(side)


@contextlib.contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Disable garbage collection: freeing a graph while another one is being captured would abort the capture."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class CapturedGraph:
    """Captures `work` on copies of `inputs`; a call copies new values into these copies and replays the graph.

    A call overwrites the result of the previous call of this graph or of any graph that shares its memory pool.
    `share`: a graph whose pool is used too, such as a graph of the same work in another shape.
    """

    def __init__(
        self, work: Callable[..., Tensor], inputs: Sequence[Tensor], share: "CapturedGraph | None" = None
    ) -> None:
        self.inputs = [tensor.clone() for tensor in inputs]
        warm_up(lambda: work(*self.inputs))
        if share is None:
            gc.collect()  # graphs of an earlier stage hold memory
        self.graph = torch.cuda.CUDAGraph()
        pool = share.graph.pool() if share else None
        # thread_local: another thread may use the GPU meanwhile, to prepare the next batch.
        with no_garbage_collection(), torch.cuda.graph(self.graph, pool=pool, capture_error_mode="thread_local"):
            self.result = work(*self.inputs)

    def __call__(self, inputs: Sequence[Tensor]) -> Tensor:
        torch._foreach_copy_(self.inputs, list(inputs))
        self.graph.replay()
        return self.result


@functools.cache
def capture_stream() -> torch.cuda.Stream:
    """One stream for all captures: cuBLAS allocates a workspace for every stream."""
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]


def record_graph(work: Callable[[], None], share: torch.cuda.CUDAGraph | None) -> torch.cuda.CUDAGraph:
    """Record `work` as a graph, fast enough to do it often. `share`: a graph whose memory pool is used too.

    `torch.cuda.graph` is slower: it empties the allocator's cache first, which takes longer than the capture.
    """
    graph, stream = torch.cuda.CUDAGraph(), capture_stream()
    stream.wait_stream(torch.cuda.current_stream())
    with no_garbage_collection(), torch.cuda.stream(stream):
        work()  # compiles kernels and lets libraries choose their algorithms
        torch.cuda.synchronize()
        # thread_local: a thread that prepares batches may pin memory meanwhile.
        graph.capture_begin(share.pool() if share else None, capture_error_mode="thread_local")
        try:
            work()
        finally:
            graph.capture_end()
    torch.cuda.current_stream().wait_stream(stream)
    return graph


def storage_address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


GetState = Callable[[], list[Tensor]]
SetState = Callable[[list[Tensor]], None]


def advance(step: Callable[[], None], get: GetState, put: SetState, state: list[Tensor]) -> None:
    """Run the step, copy the new state into the tensors of `state`, and set these as the state again."""
    step()
    old = {storage_address(tensor) for tensor in state}
    by_type: defaultdict[torch.dtype, list[tuple[Tensor, Tensor]]] = defaultdict(list)
    for fixed, new in zip(state, get(), strict=True):
        if new is not fixed:
            # Clone views of the old state, which is about to be overwritten.
            by_type[fixed.dtype].append((fixed, new.clone() if storage_address(new) in old else new))
    for pairs in by_type.values():  # one kernel for each type
        torch._foreach_copy_([fixed for fixed, _ in pairs], [new for _, new in pairs])
    put(state)


class RepeatedStep:
    """A step that advances some state, recorded as a CUDA graph that every call replays. A CPU just runs the step.

    `get` returns the tensors that the step replaces, and `put` sets them. Between calls they are always the same
    tensors, into which the new state is copied. So they may be changed in place, and several steps may share them.
    `share`: a step whose temporary memory is used too. The step runs one extra time when it is captured, so what it
    changes in place must not depend on the number of runs.
    """

    def __init__(
        self, step: Callable[[], None], get: GetState, put: SetState, share: "RepeatedStep | None" = None
    ) -> None:
        state = get()
        self.again: Callable[[], None] = functools.partial(advance, step, get, put, state)
        self.graph: torch.cuda.CUDAGraph | None = None
        if state[0].device.type == "cuda":
            before = [tensor.clone() for tensor in state]
            self.graph = record_graph(self.again, share.graph if share else None)
            torch._foreach_copy_(state, before)  # capturing ran the step
            self.again = self.graph.replay  # drops the step, so that the memory of the step's owner can be freed

    def __call__(self) -> None:
        self.again()
