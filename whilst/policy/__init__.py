"""Policies, which decide READ or WRITE from what has been read and written so far.

Independent of decoding loops and files. Others use `make_policy`, `register` and the interface in base.py.
"""

from whilst.policy.base import Decider, Futures, Policy, StatelessPolicy, View
from whilst.policy.registry import Context, make_policy, register

__all__ = ["Context", "Decider", "Futures", "Policy", "StatelessPolicy", "View", "make_policy", "register"]
