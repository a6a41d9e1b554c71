"""Online policies: READ or WRITE, decided from what has been read and written so far.

Knows no decoding loop and no files. Others use `make_policy` and `register`, and the interface in base.py.
"""

from whilst.policy.base import Decider, Futures, Policy, StatelessPolicy, View
from whilst.policy.registry import Context, make_policy, register

__all__ = ["Context", "Decider", "Futures", "Policy", "StatelessPolicy", "View", "make_policy", "register"]
