"""Make policies for a trained run: give `whilst.policy` what it needs of the run, and of a test set for oracles."""

import dataclasses
import functools
import itertools

from whilst.core.config import values_with
from whilst.core.errors import UserError
from whilst.core.policy_spec import PolicySpec, oracle_policies
from whilst.core.settings import Evaluate, Role
from whilst.data.dataset import Split
from whilst.model.checkpoint import LoadedRun
from whilst.model.run_folder import length_ratio_of
from whilst.policy import Context, Policy, make_policy
from whilst.search.labels import find_labels

SEARCH_TOKENS = 8192  # per batch


def policy_for(trained: LoadedRun, spec: PolicySpec, settings: Evaluate, split: Split | None = None) -> Policy:
    """`split`: the sentence pairs for which an oracle's reads are searched."""
    learnt, search = trained.agent_search, trained.recipe.search
    if learnt and spec.kind == "agent" and values_with(learnt, Role.READS) != values_with(search, Role.READS):
        raise UserError(f"--set search.…: the agent of {trained.path} was trained with other settings; remove them")
    context = Context(
        trained.model,
        (trained.source, trained.target),
        str(trained.path),
        trained.agent,
        trained.agents,
        settings.threshold,
        length_ratio=functools.partial(length_ratio_of, trained.path, trained.recipe),
        reference_reads=functools.partial(searched_reads, trained, settings, split),
        is_patient=settings.ending == "patient",
    )
    return make_policy(spec, context)


def searched_reads(
    trained: LoadedRun, settings: Evaluate, split: Split | None, spec: PolicySpec
) -> list[list[int]]:
    """The reads of an oracle for each pair of a split."""
    if settings.precision != "single":
        raise UserError(f"policy {spec}: the search needs single precision; leave out evaluate.precision")
    search = trained.recipe.search
    interval = search.intervals[spec.index_in(oracle_policies(search.intervals))]
    if split is None:
        raise UserError(f"policy {spec}: an oracle needs the reference; use it with `whilst evaluate`")
    search = dataclasses.replace(search, intervals=(interval,))
    reads = find_labels(trained.model, search, split, SEARCH_TOKENS).reads[0].tolist()
    return [reads[begin:end] for begin, end in itertools.pairwise(split.target.offsets.tolist())]
