"""The steps of a live translation, done by the PyTorch model under any policy. Knows units; nothing of words.

The caches have a fixed capacity, and every sentence begins at their start again: nothing grows in an endless talk.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from whilst.core.distributed import pick_device
from whilst.core.errors import UserError
from whilst.core.policy_spec import PolicySpec
from whilst.data.vocabulary import BOS
from whilst.evaluation.evaluate import choose, with_settings
from whilst.live.session import MAX_UNITS, Backend, TextPipeline
from whilst.model.checkpoint import LoadedRun, load_run
from whilst.model.transformer import Translator, likeliest
from whilst.policy import Policy, View


def require_live(model: Translator) -> None:
    if model.bidirectional:
        what = "this model cannot go live, its encoder needs the whole source before it begins"
        raise UserError(f"{what}; use `whilst translate`")


class Eager(Backend):
    """One sentence at a time of at most `longest` units, with its own caches and its own decider."""

    @torch.inference_mode()
    def __init__(self, model: Translator, policy: Policy, longest: int, most: int) -> None:
        require_live(model)
        self.model, self.policy = model, policy
        self.cache = model.start(1, longest, most)
        device = self.cache.read.device
        self.number = torch.zeros(1, dtype=torch.long, device=device)
        self.one, self.yes = torch.ones_like(self.number), torch.ones_like(self.number, dtype=torch.bool)
        self.source = torch.zeros(1, longest, dtype=torch.long, device=device)
        self.last = torch.full_like(self.number, BOS)
        self.decider = policy.start(self.number)
        self.ahead: Tensor | None = None  # what `look` saw since the last action

    @torch.inference_mode()
    def begin(self) -> None:
        # What the caches hold lies beyond their ends now, where nothing looks, and is written over.
        self.cache.restart()
        self.last = torch.full_like(self.last, BOS)
        self.decider = self.policy.start(self.number)
        self.ahead = None

    @torch.inference_mode()
    def read(self, unit: int) -> None:
        place = self.cache.read_end
        self.source[0, place] = unit
        self.model.read(self.cache, self.source[:, place : place + 1], self.one)
        self.ahead = None

    def look(self) -> Tensor:
        if self.ahead is None:
            self.ahead = self.model.look(self.cache, self.last, self.cache.read)
        return self.ahead

    @torch.inference_mode()
    def decide(self) -> bool:
        ahead = self.look() if self.policy.looks_ahead else None
        return bool(self.decider.write(View.of(self.cache, self.cache.read, self.source, self.last, ahead)))

    @torch.inference_mode()
    def write(self) -> int:
        ahead = self.look()
        self.cache.commit(ahead, self.yes)
        self.last = likeliest(self.model.logits(ahead))
        self.ahead = None
        return int(self.last)


def load(
    folder: Path,
    name: PolicySpec,
    overrides: Sequence[str] = (),
    device: str = "auto",
) -> tuple[LoadedRun, Policy]:
    """A run's model, and its policy of this name; with settings changed as `--set` does."""
    trained = with_settings(load_run(folder, pick_device(device)), list(overrides))
    return trained, choose(name, trained, trained.recipe.evaluate, None)


def text_of(trained: LoadedRun, longest: int = MAX_UNITS, by_lines: bool = False) -> TextPipeline:
    """The words and sentences of a run."""
    return TextPipeline.of(trained.recipe, trained.source, trained.target, longest, by_lines)


def steps_of(trained: LoadedRun, policy: Policy, text: TextPipeline) -> Eager:
    return Eager(trained.model, policy, text.max_units, text.max_target_units(text.max_units))
