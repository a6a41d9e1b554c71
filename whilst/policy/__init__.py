"""Online policies: READ or WRITE, decided from what has been read and written so far. One small file each."""

from collections.abc import Callable

from whilst.core.errors import UserError
from whilst.policy.base import Decider, Policy, Prospects, View
from whilst.policy.full import Full
from whilst.policy.mma import Stopped
from whilst.policy.wait_k import WaitK

# The part of a policy's name before the first "-" -> how to build it from the rest.
POLICIES: dict[str, Callable[[str], Policy]] = {"full": Full.parse, "wait": WaitK.parse, "mma": Stopped.parse}


def policy(name: str) -> Policy:
    """The policy of this name: `full`, `wait-3`, …"""
    kind, _, argument = name.partition("-")
    if kind not in POLICIES:
        known = "full, wait-K (wait-3), diagonal-K, mma, agent-L or oracle-L"
        raise UserError(f"policy {name!r}: unknown; write {known}")
    return POLICIES[kind](argument)


__all__ = ["POLICIES", "Decider", "Policy", "Prospects", "View", "policy"]
