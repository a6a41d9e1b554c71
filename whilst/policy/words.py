"""Policies that decide by the words of one sentence at a time: the easy way to write a new policy."""

import abc
import copy
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from whilst.core.errors import UserError, as_user_error
from whilst.core.policy_spec import PolicySpec
from whilst.data.vocabulary import EOS, UNK, Language
from whilst.policy.base import Decider, Policy, View


class WordPolicy(abc.ABC):
    """READ or WRITE by words. One object serves all sentences, so it must not store anything about a sentence.

    Words are complete, and as the model sees them: a word that is not in the model's vocabulary is <unk>.
    """

    @abc.abstractmethod
    def write(self, read: list[str], written: list[str]) -> bool:
        """True for WRITE, False for READ. Called until the source is finished; `read` has at least one word."""


@dataclass(frozen=True)
class ByWords(Policy):
    """Applies a WordPolicy to batches. It runs in Python, so that its steps cannot be recorded as CUDA graphs."""

    identity: PolicySpec
    policy: WordPolicy
    languages: tuple[Language, Language] = field(repr=False)
    on_host = True

    @property
    def spec(self) -> PolicySpec:
        return self.identity

    def start(self, sentences: Tensor) -> Decider:
        return WordDecider(self, [[] for _ in sentences])


class WordDecider(Decider):
    def __init__(self, policy: ByWords, units: list[list[int]]) -> None:
        self.policy, self.units = policy, units  # written so far, by row

    def write(self, view: View) -> Tensor:
        source = view.source if view.rows is None else view.source[view.rows]
        counts = torch.stack([view.read, view.written, view.last], 1).tolist()
        rows = zip(source.tolist(), counts, self.units, strict=True)
        return torch.tensor([self._decide(*row) for row in rows], device=view.read.device)

    def _decide(self, source: Sequence[int], counts: Sequence[int], units: list[int]) -> bool:
        read, written, last = counts
        if len(units) < written:
            units.append(last)
        if source[read - 1] == EOS:
            return True
        source_language, target_language = self.policy.languages
        if not is_whole(source_language, *source[read - 1 : read + 1]):
            return False
        words = source_language.decode(source[:read])
        return bool(words) and self._call_policy(words, target_language.whole_words(units))

    def _call_policy(self, read: list[str], written: list[str]) -> bool:
        with as_user_error(f"policy {self.policy.spec}"):
            decision = self.policy.policy.write(read, written)
        if not isinstance(decision, bool):
            raise UserError(f"policy {self.policy.spec}: write must return True or False, not {decision!r:.40}")
        return decision

    def subset(self, rows: Tensor) -> "WordDecider":
        return WordDecider(self.policy, [copy.copy(self.units[row]) for row in rows.tolist()])

    def update(self, rows: Tensor, subset: Decider) -> None:
        assert isinstance(subset, WordDecider)
        for row, units in zip(rows.tolist(), subset.units, strict=True):
            self.units[row] = units


def is_whole(language: Language, unit: int, following: int) -> bool:
    """Whether a unit is the last of its word. `following`: the next unit; EOS if no unit of the word follows."""
    segmenter = language.segmenter
    if segmenter.first_mark:
        return following == EOS or segmenter.starts_word(language.units[following])
    return unit == UNK or segmenter.ends_word(language.units[unit])
