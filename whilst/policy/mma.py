"""MMA: WRITE when every monotone head of every decoder layer has stopped."""

from dataclasses import dataclass

from torch import Tensor

from whilst.core.errors import UserError
from whilst.core.policy_spec import PolicySpec
from whilst.policy.base import Decider, Policy, View

NO_HEADS = 'policy mma: this model has no monotone heads; train one with model.cross = "monotone"'


@dataclass(frozen=True)
class Stopped(Policy, Decider):
    """Remembers nothing: where its heads stand belongs to the model's cache."""

    @property
    def spec(self) -> PolicySpec:
        return PolicySpec("mma")

    @property
    def looks_ahead(self) -> bool:
        return True  # whether a head stops depends on the token that it would help to write

    def start(self, sentences: Tensor) -> Decider:  # noqa: ARG002
        return self

    def write(self, view: View) -> Tensor:
        if view.stopped is None:
            raise UserError(NO_HEADS)
        return view.stopped

    def part(self, rows: Tensor) -> Decider:  # noqa: ARG002
        return self
