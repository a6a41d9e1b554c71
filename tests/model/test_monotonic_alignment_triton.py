"""The kernels of monotone heads do what the plain way does; on Triton's interpreter, so that no GPU is needed."""

import importlib.util
import os
import subprocess
import sys

import pytest

from whilst.model.monotonic_attention import Monotone, hasten
from whilst.model.transformer import Translator

CHECK = """
import torch
from whilst import chances, chances_triton

assert chances_triton.agrees(torch.device("cpu"))
torch.manual_seed(0)
limits = torch.tensor([[9] * 4, [2, 2, 5, 7]])  # whole sentences, and reads that grow
visible = (torch.arange(9) < limits[..., None])[:, None]
for scale, kind, error in ((1.0, torch.float32, 1e-5), (30.0, torch.float32, 1e-4), (2000.0, torch.bfloat16, 1e-2)):
    drawn = [(scale * torch.randn(2, 2, 4, 9)).to(kind) for _ in range(2)]
    found = []
    for follow, type in ((chances_triton.follow, kind), (chances.follow, torch.float64)):
        energies = [one.to(type).requires_grad_() for one in drawn]
        weights, delays = follow(*energies, visible)
        worth = (weights.double() * torch.linspace(-1, 1, 9)).sum() + (delays.double() * torch.arange(4)).sum()
        found.append([one.double() for one in (weights, delays, *torch.autograd.grad(worth, energies))])
    torch.testing.assert_close(*found, atol=error, rtol=error)
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_kernels_do_what_the_plain_way_does() -> None:
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    check = [sys.executable, "-c", CHECK]
    done = subprocess.run(check, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr


def test_without_them_heads_go_the_plain_way(monotone: Translator, capsys: pytest.CaptureFixture[str]) -> None:
    """Where Triton is missing, or has no GPU: one line, and nothing changes."""
    plain = [module.follow for module in monotone.modules() if isinstance(module, Monotone)]
    hasten(monotone)
    assert [module.follow for module in monotone.modules() if isinstance(module, Monotone)] == plain
    assert "the kernels of monotone heads are left out" in capsys.readouterr().err
