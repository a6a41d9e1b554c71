"""A file with policies of one's own, and how tests forget that it was named."""

import contextlib
import sys
from collections.abc import Iterator
from unittest import mock

from whilst.core.policy_spec import KINDS
from whilst.policy.registry import FACTORIES

FILE = """
import random
import whilst

class Ends(whilst.WordPolicy):
    def __init__(self, n: int) -> None:
        self.n = n

    def write(self, read: list[str], written: list[str]) -> bool:
        assert all(read)
        return len(read) - len(written) >= (1 if read[-1].endswith("n") else self.n)

class Chance(whilst.WordPolicy):
    def write(self, read: list[str], written: list[str]) -> bool:
        return random.Random(" ".join([*read, "/", *written])).random() < 0.5

whilst.register_policy("ends", lambda spec, context: Ends(spec.count), whilst.PolicyKind("count"))
whilst.register_policy("chance", lambda spec, context: Chance())
"""


@contextlib.contextmanager
def forgotten() -> Iterator[None]:
    """Policies that are registered meanwhile are not known afterwards."""
    with mock.patch.dict(KINDS), mock.patch.dict(FACTORIES):
        yield
    for name in [name for name in sys.modules if name.startswith("policies of ")]:
        del sys.modules[name]
