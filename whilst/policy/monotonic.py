"""MMA: WRITE when every monotone head of every decoder layer has stopped."""

from dataclasses import dataclass

from torch import Tensor

from whilst.core.errors import UserError
from whilst.core.policy_spec import PolicySpec
from whilst.policy.base import StatelessPolicy, View

NO_HEADS = 'policy mma: this model has no monotone heads; train one with model.cross = "monotone"'


@dataclass(frozen=True)
class Monotonic(StatelessPolicy):
    """The positions of the heads are in the model's cache."""

    @property
    def spec(self) -> PolicySpec:
        return PolicySpec("mma")

    @property
    def needs_lookahead(self) -> bool:
        return True  # whether a head stops depends on the decoder state of the next token

    def write(self, view: View) -> Tensor:
        if view.stopped is None:
            raise UserError(NO_HEADS)
        return view.stopped
