"""Live translation with the PyTorch model under any policy. Knows units, not words.

Caches have a fixed capacity and are used again by the next sentence: nothing grows in an endless session.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

import torch

from whilst.core.distributed import pick_device
from whilst.core.policy_spec import PolicySpec
from whilst.decoding.policies import policy_for
from whilst.decoding.state import DecodingState
from whilst.live.loading import Model, ModelOptions
from whilst.live.session import Backend, Operation, Request, TextPipeline
from whilst.model.checkpoint import LoadedRun, load_run
from whilst.model.run_folder import override_after_training
from whilst.model.transformer import Translator
from whilst.policy import Policy


class TorchBackend(Backend):
    """One sentence at a time."""

    @torch.inference_mode()
    def __init__(self, model: Translator, policy: Policy, max_source: int, max_target: int) -> None:
        self.policy, self.state = policy, DecodingState(model, model.start(1, max_source, max_target))
        self.sentence = torch.zeros_like(self.state.last)
        self.decider = policy.start(self.sentence)

    @torch.inference_mode()
    def run(self, request: Request) -> int:
        match request.operation:
            case Operation.BEGIN:
                self.state.restart()
                self.decider = self.policy.start(self.sentence)
            case Operation.READ:
                self.state.read(torch.full_like(self.sentence, request.unit))
            case Operation.DECIDE:
                return int(self.decider.write(self.state.view(self.policy.needs_lookahead)))
            case Operation.WRITE:
                return int(self.state.write())
        return 0


@dataclass(frozen=True)
class TorchModel(Model):
    """A live model whose trained model the server can run in batches."""

    find: Callable[[PolicySpec], Policy]
    trained: LoadedRun


def open_run(options: ModelOptions, folder: Path, policy: PolicySpec, note: str) -> TorchModel:
    """The run in `folder`, opened for this policy."""
    if options.threads:
        torch.set_num_threads(options.threads)
    trained = load_run(folder, pick_device(options.device))
    trained.require_causal_encoder()
    trained = replace(trained, recipe=override_after_training(trained.recipe, list(options.overrides), folder))
    find = lru_cache(maxsize=64)(partial(policy_for, trained, settings=trained.recipe.evaluate))

    def make(rule: Policy, text: TextPipeline) -> Backend:
        return TorchBackend(trained.model, rule, *text.longest)

    text = TextPipeline.of(trained.recipe, trained.source, trained.target)
    return TorchModel(text, trained.recipe, policy, trained.agents, "PyTorch", note, find, make, trained)
