"""Forward and backward of one batch shape as a CUDA graph: hundreds of kernels, one launch.

Without it the GPU waits for the host: the packed layout has one shape, so one recording serves every batch.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from whilst.data import Batch

Work = Callable[[Batch, Tensor, Tensor], Tensor]  # batch, reads, scale -> loss, gradients added on the way


class Captured:
    """Records `work` once, on tensors of its own; a call copies the new batch into them and replays."""

    def __init__(self, work: Work, model: nn.Module, batch: Batch, reads: Tensor, scale: Tensor) -> None:
        self.inputs = tuple(tensor.clone() for tensor in (*batch.tensors(), reads, scale))
        self.batch = batch.with_tensors(self.inputs[:-2])
        for parameter in model.parameters():  # the recording adds to these very tensors
            parameter.grad = torch.zeros_like(parameter)
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(2):  # compiles, and lets every library choose its algorithms
                work(self.batch, *self.inputs[-2:])
        torch.cuda.current_stream().wait_stream(aside)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.loss = work(self.batch, *self.inputs[-2:])
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.grad.zero_()

    def __call__(self, batch: Batch, reads: Tensor, scale: Tensor) -> Tensor:
        torch._foreach_copy_(list(self.inputs), [*batch.tensors(), reads, scale])
        self.graph.replay()
        return self.loss
