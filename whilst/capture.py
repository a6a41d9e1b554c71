"""Work on tensors of fixed shapes as a CUDA graph: hundreds of kernels, one launch.

Without it the GPU waits for the host: the packed layout has one shape, so one recording serves every batch.
"""

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

    The next call overwrites what a call returns.
    """

    def __init__(self, work: Callable[..., Tensor], inputs: Sequence[Tensor]) -> None:
        self.inputs = [tensor.clone() for tensor in inputs]
        warm_up(lambda: work(*self.inputs))
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.result = work(*self.inputs)

    def __call__(self, inputs: Sequence[Tensor]) -> Tensor:
        torch._foreach_copy_(self.inputs, list(inputs))
        self.graph.replay()
        return self.result


class Repeated:
    """Records a step that moves some state on; every call moves it on once more.

    `get` and `put` give and take the tensors that a step replaces. What it changes in place it must change to the
    same when it is repeated from the same state.
    """

    def __init__(
        self, step: Callable[[], None], get: Callable[[], list[Tensor]], put: Callable[[list[Tensor]], None]
    ) -> None:
        began = get()
        state = [tensor.clone() for tensor in began]

        def work() -> None:
            put(state)
            step()
            torch._foreach_copy_(state, get())
            put(state)

        warm_up(work)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            work()
        torch._foreach_copy_(state, began)

    def __call__(self) -> None:
        self.graph.replay()
