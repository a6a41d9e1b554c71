"""Work on tensors of fixed shapes as a CUDA graph: hundreds of kernels, one launch.

Without it the GPU waits for the host: the packed layout has one shape, so one recording serves every batch.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


class Captured:
    """Records `work` once, on tensors of its own; a call copies new values into them and replays.

    The next call overwrites what a call returns.
    """

    def __init__(self, work: Callable[..., Tensor], inputs: Sequence[Tensor]) -> None:
        self.inputs = [tensor.clone() for tensor in inputs]
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(2):  # compiles, and lets every library choose its algorithms
                work(*self.inputs)
        torch.cuda.current_stream().wait_stream(aside)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.result = work(*self.inputs)

    def __call__(self, inputs: Sequence[Tensor]) -> Tensor:
        torch._foreach_copy_(self.inputs, list(inputs))
        self.graph.replay()
        return self.result
