"""The Triton kernels of monotonic heads match PyTorch, run by Triton's interpreter, which needs no GPU."""

import importlib.util
import os
import subprocess
import sys

import pytest

from whilst.model.monotonic_attention import MonotonicHeads, use_triton_kernels
from whilst.model.transformer import Translator

CHECK = """
import torch
from whilst.model import monotonic_attention, monotonic_triton

assert monotonic_triton.agree(torch.device("cpu"))
torch.manual_seed(0)
limits = torch.tensor([[9] * 4, [2, 2, 5, 7]])  # whole sentences, and growing reads
visible = (torch.arange(9) < limits[..., None])[:, None]
for scale, kind, error in ((1.0, torch.float32, 1e-5), (30.0, torch.float32, 1e-4), (2000.0, torch.bfloat16, 1e-2)):
    drawn = [(scale * torch.randn(2, 2, 4, 9)).to(kind) for _ in range(2)]
    found = []
    for module, type in ((monotonic_triton, kind), (monotonic_attention, torch.float64)):
        energies = [one.to(type).requires_grad_() for one in drawn]
        weights, delays = module.expected_attention(*energies, visible)
        loss = (weights.double() * torch.linspace(-1, 1, 9)).sum() + (delays.double() * torch.arange(4)).sum()
        found.append([one.double() for one in (weights, delays, *torch.autograd.grad(loss, energies))])
    torch.testing.assert_close(*found, atol=error, rtol=error)
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_kernels_match_pytorch() -> None:
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    check = [sys.executable, "-c", CHECK]
    done = subprocess.run(check, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr


def test_pytorch_is_used_without_kernels(monotone: Translator, capsys: pytest.CaptureFixture[str]) -> None:
    """Where Triton is missing or has no GPU, one line says so."""
    plain = [module.expected_attention for module in monotone.modules() if isinstance(module, MonotonicHeads)]
    use_triton_kernels(monotone)
    assert [
        module.expected_attention for module in monotone.modules() if isinstance(module, MonotonicHeads)
    ] == plain
    assert "the kernels of monotonic heads are not used" in capsys.readouterr().err
