"""Devices and processes: where the work runs, and how several processes train one model under `torchrun`."""

import os
import platform
import shlex
import sys
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import whilst
from whilst.core.errors import UserError

# How long the others wait while the first validates, evaluates or translates; if one dies, torchrun ends them all.
PATIENCE = timedelta(days=7)


@dataclass(frozen=True)
class Processes:
    rank: int = 0
    count: int = 1

    @classmethod
    def join(cls, device: torch.device) -> "Processes":
        """Meet the others, if torchrun started us."""
        count = int(os.environ.get("WORLD_SIZE", "1"))
        if count == 1:
            return cls()
        if not dist.is_initialized():
            dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
        return cls(dist.get_rank(), count)

    @staticmethod
    def leave() -> None:
        """For good: whoever has left cannot join again."""
        if dist.is_initialized():
            dist.destroy_process_group()

    def end(self) -> None:
        """End this process, if it is one of several, with all its work done.

        Without what Python does at its end: now and then, under load, a thread of gloo's was still there then, and
        the process aborted, which torchrun takes for a failure of all.
        """
        if self.count > 1:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)

    @property
    def first(self) -> bool:
        return self.rank == 0

    def sum_gradients(self, model: nn.Module) -> None:
        """Add up the gradients of all processes, as one flat tensor: one message in place of hundreds."""
        if self.count == 1:
            return
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat)
        sizes = [gradient.numel() for gradient in gradients]
        for gradient, part in zip(gradients, torch.split(flat, sizes), strict=True):
            gradient.copy_(part.view_as(gradient))

    def sum(self, value: Tensor) -> Tensor:
        if self.count > 1:
            dist.all_reduce(value)
        return value

    def any(self, value: bool, device: torch.device) -> bool:
        """Whether one of them says so."""
        if self.count == 1:
            return value
        said = torch.tensor([int(value)], device=device)
        dist.all_reduce(said, op=dist.ReduceOp.MAX)
        return bool(said.item())

    def agree(self, value: bool, device: torch.device) -> bool:
        """What rank 0 says."""
        if self.count == 1:
            return value
        said = torch.tensor([int(value)], device=device)
        dist.broadcast(said, src=0)
        return bool(said.item())


def pick_device(name: str = "auto") -> torch.device:
    """`auto`: this process's GPU if there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        if device.type not in ("cpu", "cuda"):
            raise RuntimeError
    except RuntimeError:
        raise UserError(f"--device {name}: write auto, cpu, cuda or cuda:0") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError(f"--device {name}: there is no usable GPU here; leave it out or write --device cpu")
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    if device.type == "cuda" and device.index >= (count := torch.cuda.device_count()):
        raise UserError(f"--device {name}: {device} is not here, there are only {count} GPUs, counted from 0")
    if device.type == "cuda":
        torch.cuda.set_device(device)  # where streams are made and graphs are recorded
        # cuDNN's attention plans each new shape anew, which takes longer than the attention itself.
        torch.backends.cuda.enable_cudnn_sdp(False)
    return device


def wake_compilers(device: torch.device) -> None:
    """Start the processes that compile kernels for a GPU, which takes seconds, before there is anything to compile.

    Until they are there, kernels are compiled one after the other.
    """
    if device.type == "cuda":
        from torch._inductor.async_compile import AsyncCompile

        AsyncCompile.use_process_pool()  # type: ignore[no-untyped-call]


def describe(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU ({torch.get_num_threads()} threads)"


def command() -> str:
    """How this was called: what a figure needs to be made again."""
    return shlex.join(["whilst", *sys.argv[1:]])


def versions() -> dict[str, str]:
    """What a figure depends on besides our own code."""
    return {"whilst": whilst.__version__, "torch": str(torch.__version__), "python": platform.python_version()}


def circumstances(device: torch.device) -> dict[str, Any]:
    """Under which a figure was made: what every file of figures says of itself."""
    return {"command": command(), "device": describe(device), "versions": versions()}
