"""Live translation on PyTorch, under any policy. Handles units, not words.

Caches have a fixed capacity and are reused by the next sentence: memory does not grow in an endless session.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

import torch

from whilst.core.distributed import pick_device
from whilst.core.errors import UserError
from whilst.core.policy_spec import OFFLINE, PolicySpec, for_latency, not_calibrated
from whilst.data.vocabulary import EOS
from whilst.decoding.offline import (
    OfflineModel,
    Retranslation,
    Rule,
    TranslatorModel,
    needs_retranslation,
    retranslate,
)
from whilst.decoding.policies import policy_for
from whilst.decoding.pretrained import Pretrained, open_pretrained
from whilst.decoding.state import DecodingState
from whilst.live.loading import Model, ModelOptions
from whilst.live.session import Backend, Operation, Request, TextPipeline
from whilst.model.checkpoint import LoadedRun, load_run
from whilst.model.lags import lag_finder
from whilst.model.run_folder import override_after_training
from whilst.model.transformer import Translator
from whilst.policy import Policy


class TorchBackend(Backend):
    """Translates one sentence at a time with a model that reads and writes unit by unit."""

    @torch.inference_mode()
    def __init__(self, model: Translator, policy: Policy, max_source: int, max_target: int) -> None:
        self.policy, self.state = policy, DecodingState(model, model.start(1, max_source, max_target))
        self._index = torch.zeros_like(self.state.last)  # (1): sentence 0
        self.decider = policy.start(self._index)

    @torch.inference_mode()
    def run(self, request: Request) -> int:
        self.state.ban([request.banned])
        match request.operation:
            case Operation.BEGIN:
                self.state.restart()
                self.decider = self.policy.start(self._index)
            case Operation.READ:
                self.state.read(torch.full_like(self._index, request.unit))
            case Operation.DECIDE:
                self.state.announce(torch.full_like(self._index, request.unit))
                return int(self.decider.write(self.state.view(self.policy.needs_lookahead)))
            case Operation.WRITE:
                return int(self.state.write())
        return 0


class OfflineBackend(Backend):
    """Translates one sentence at a time with an offline model: anew after every source word."""

    def __init__(self, model: OfflineModel, rule: Rule, limit: Callable[[int], int]) -> None:
        self.model = model
        self._new = partial(Retranslation, rule, limit)
        self.sentence = self._new()

    def run(self, request: Request) -> int:
        match request.operation:
            case Operation.BEGIN:
                self.sentence = self._new()
            case Operation.READ:
                self.sentence.read(request.unit)
            case Operation.DECIDE if request.unit == EOS:  # the word is whole
                retranslate(self.model, [self.sentence])
                return int(self.sentence.can_write)
            case Operation.WRITE:
                retranslate(self.model, [self.sentence])
                return self.sentence.write()
        return 0


@dataclass(frozen=True)
class TorchModel(Model):
    """A live model that the server can run in batches."""

    find: Callable[[PolicySpec], Policy]
    trained: LoadedRun


def open_run(options: ModelOptions, folder: Path, policy: PolicySpec, note: str) -> Model:
    """Open the run in `folder` for live translation under `policy`."""
    if options.threads:
        torch.set_num_threads(options.threads)
    trained = load_run(folder, pick_device(options.device))
    trained = replace(trained, recipe=override_after_training(trained.recipe, list(options.overrides), folder))
    if trained.model.bidirectional or needs_retranslation(trained.recipe.model, policy):
        return open_offline(options, trained, TranslatorModel(trained.model))
    find = lru_cache(maxsize=64)(partial(policy_for, trained, settings=trained.recipe.evaluate))

    def make(rule: Policy, text: TextPipeline) -> Backend:
        return TorchBackend(trained.model, rule, *text.longest)

    text = TextPipeline.of(trained.recipe, trained.source, trained.target)
    find_lag = lag_finder(folder)
    return TorchModel(text, trained.recipe, policy, trained.agents, find_lag, "PyTorch", note, find, make, trained)


@dataclass(frozen=True)
class Offline(Model):
    """A live offline model. The server can run its sessions in one batch."""

    model: OfflineModel
    make_backend: Callable[[Rule, TextPipeline], OfflineBackend]


def open_offline(options: ModelOptions, trained: LoadedRun | Pretrained, model: OfflineModel) -> Offline:
    """Open a run or a pretrained model as an offline model, which translates anew after every word."""
    policy, note = for_latency(options.latency, OFFLINE)
    text = TextPipeline.of(trained.recipe, trained.source, trained.target)
    text = replace(text, max_target_units=model.limit(text.max_target_units))

    def make(rule: Rule, text: TextPipeline) -> OfflineBackend:
        return OfflineBackend(model, rule, text.max_target_units)

    return Offline(text, trained.recipe, policy, OFFLINE, not_calibrated, "PyTorch", note, Rule, make, model=model)


def open_checkpoint(options: ModelOptions) -> Offline:
    """Open a pretrained model by its name, "hf:NAME"."""
    if options.engine == "onnx":
        raise UserError(f"--engine onnx: {options.model} runs on PyTorch; leave it out")
    if options.threads:
        torch.set_num_threads(options.threads)
    opened = open_pretrained(options.model, options.overrides, pick_device(options.device))
    return open_offline(options, opened, opened.model)
