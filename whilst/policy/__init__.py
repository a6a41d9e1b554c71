"""Online policies: READ or WRITE, decided from what has been read and written so far. One small file each."""

from collections.abc import Callable

from whilst.core.errors import UserError
from whilst.core.policy_spec import PolicySpec
from whilst.policy.base import Decider, Policy, Prospects, View
from whilst.policy.full import Full
from whilst.policy.mma import Stopped
from whilst.policy.wait_k import WaitK

# Policies that need nothing but their name.
POLICIES: dict[str, Callable[[PolicySpec], Policy]] = {
    "full": lambda _: Full(),
    "wait": lambda spec: WaitK(spec.count),
    "mma": lambda _: Stopped(),
}


def make_policy(spec: PolicySpec) -> Policy:
    if spec.kind not in POLICIES:
        raise UserError(f"policy {spec}: needs a trained run; without one there are {', '.join(POLICIES)}")
    return POLICIES[spec.kind](spec)


def policy(name: str) -> Policy:
    """The policy of this name: `full`, `wait-3`, …"""
    return make_policy(PolicySpec.parse(name))


__all__ = ["POLICIES", "Decider", "Policy", "Prospects", "View", "make_policy", "policy"]
