"""Choose the device, and train one model in several processes under `torchrun`."""

import os
import sys
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn

from whilst.core.errors import UserError

# Long, since all ranks wait while rank 0 validates, evaluates and translates. If a process dies, torchrun ends all.
TIMEOUT = timedelta(days=7)


@dataclass(frozen=True)
class Processes:
    rank: int = 0
    count: int = 1  # number of processes

    @classmethod
    def join(cls, device: torch.device) -> "Processes":
        """Join the process group if torchrun started this process."""
        count = int(os.environ.get("WORLD_SIZE", "1"))
        if count == 1:
            return cls()
        if not dist.is_initialized():
            dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=TIMEOUT)
        return cls(dist.get_rank(), count)

    @staticmethod
    def leave() -> None:
        """A process cannot join again afterwards."""
        if dist.is_initialized():
            dist.destroy_process_group()

    def exit(self) -> None:
        """End this process without Python's clean-up if it is one of several.

        A gloo thread that still runs during clean-up can abort the process, which torchrun reports as a failure.
        """
        if self.count > 1:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)

    @property
    def first(self) -> bool:
        return self.rank == 0

    def sum_gradients(self, model: nn.Module) -> None:
        """Add up the gradients of all processes, as one flat tensor: one message instead of hundreds."""
        if self.count == 1:
            return
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat)
        parts = torch.split(flat, [gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    def sum(self, value: Tensor) -> Tensor:
        """The sum over all processes, computed in place."""
        if self.count > 1:
            dist.all_reduce(value)
        return value

    def largest(self, value: int, device: torch.device) -> int:
        """The largest value of any process."""
        if self.count == 1:
            return value
        largest = torch.tensor([value], device=device)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        return int(largest.item())

    def broadcast(self, value: bool, device: torch.device) -> bool:
        """The value of rank 0. Also a barrier."""
        return bool(self.largest(int(self.first and value), device))


def pick_device(name: str = "auto") -> torch.device:
    """The device with this name; `auto` is the GPU of this process if there is one, else the CPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        if device.type not in ("cpu", "cuda"):
            raise RuntimeError
    except RuntimeError:
        raise UserError(f"--device {name}: write auto, cpu, cuda or cuda:0") from None
    if device.type == "cpu":
        return device
    if not torch.cuda.is_available():
        raise UserError(f"--device {name}: there is no usable GPU here; leave it out or write --device cpu")
    if device.index is None:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    if device.index >= (count := torch.cuda.device_count()):
        raise UserError(f"--device {name}: no {device}, the GPUs here are cuda:0 to cuda:{count - 1}")
    torch.cuda.set_device(device)  # streams and CUDA graphs use the current device
    # cuDNN attention makes a plan for each new shape, which takes longer than the attention itself.
    torch.backends.cuda.enable_cudnn_sdp(False)
    return device


def computes_bf16(device: torch.device) -> bool:
    """Whether the device multiplies matrices of bfloat16 faster than those of float32."""
    if device.type == "cuda":
        return True
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"CPU ({threads} thread{'s' * (threads > 1)})"
