"""Identity of an evaluation as typed values: system, policy with its decoding options, language pair.

`str()` of a `System` is its title for display, that of a `Decoding` its name in records and in file names.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path

from whilst.core.policy_spec import AGENT_TRANSLATION, PolicySpec, split_name
from whilst.core.settings import Data, Evaluate, Recipe, Rung

# Kinds of built-in policies. With any other kind, the system has the name of the kind.
BUILT_IN = "full", "wait", "diagonal", "mma", "agent", "oracle", "local-agreement", "align-att"
SYSTEMS = {"full": "full-sentence", "search": "bs-simt"}  # objective -> system, where the names differ
# Titles of systems and of kinds of policy, where they differ from the name.
TITLES = {
    "bs-simt": "BS-SiMT, ours",
    "mma": "MMA",
    "wait": "wait-k",
    "local-agreement": "LocalAgreement",
    "align-att": "AlignAtt",
}
WAYS = {"paper": "slope 1", "authors": "authors' code"}  # the rungs that are the system as in the paper
SCRATCH = "scratch"
OPTION = r"\.(?:unknown-[a-z]+|ending-[a-z]+|repeats|literals|glossary|half|fp32|int8)"
DECODING = re.compile(rf"(.*?)(?:\.threshold-(\d*\.?\d+))?((?:{OPTION})*)", re.DOTALL)  # policy, threshold, options
NO_LABEL = "n/a"  # of the only point of a curve, as in the paper


@dataclass(frozen=True)
class System:
    """What was trained and how it decides. Its evaluations under several policies are points of one curve."""

    name: str  # of the field, such as multi-path or bs-simt; or the kind of a policy that is not built in
    base: str = ""  # the system that bs-simt or a registered policy runs on; a pretrained checkpoint; or SCRATCH
    fine_tuned: bool = False  # bs-simt: the base was fine-tuned on searched reads; otherwise it is used as it is
    policy: str = ""  # kind of policy, if it is not the usual one of the system
    rung: Rung = ""  # step of the ladder from the paper's system to ours; empty for ours

    @classmethod
    def of(cls, recipe: Recipe, policy: PolicySpec, base_objective: str = "") -> "System":
        """`base_objective`: the objective of the run that training started from, "" if it is not known."""
        objective, kind = recipe.objective.name, policy.kind
        trained = SYSTEMS.get(objective, objective)
        if kind not in BUILT_IN:
            return cls(kind, trained, rung=recipe.rung)
        if policy.name == AGENT_TRANSLATION.name:
            return cls("translation-based", rung=recipe.rung)
        if objective == "search":
            base = SYSTEMS.get(base_objective, base_objective) or "multi-path"
            system = cls("bs-simt", base if recipe.start else SCRATCH, True)
        else:
            base = SCRATCH if trained == "wait-k" and not recipe.start else recipe.checkpoint
            system = cls("bs-simt", trained) if kind in ("agent", "oracle") else cls(trained, base)
        usual = {"bs-simt": ("agent",), "mma": ("mma",)}.get(system.name, ("wait", "full"))
        # The whole source is the last point of a wait-k curve, also on models with another usual policy.
        shown = "" if kind in usual else "wait" if kind == "full" else kind
        return replace(system, policy=shown, rung=recipe.rung)

    @property
    def is_between(self) -> bool:
        """Whether this is a rung between the paper's system and ours."""
        return bool(self.rung) and self.rung not in WAYS

    @property
    def way(self) -> str:
        """The part of the title that names the rung, if there is one."""
        if self.rung not in WAYS:
            return f"rung {self.rung}"
        return f"as in the paper: {WAYS[self.rung]}" if self.name == "bs-simt" else "as in the paper"

    def __str__(self) -> str:
        """The title for display, such as "BS-SiMT, ours, fine-tuned" or "multi-path, diagonal"."""
        usual_base = self.name == "bs-simt" and self.base == "multi-path"
        parts = [TITLES.get(self.name, self.name)]
        if self.rung:
            parts = [parts[0].removesuffix(", ours"), self.way]
        elif self.base == SCRATCH:
            parts.append("from scratch")
        elif self.fine_tuned:
            parts.append("fine-tuned" if usual_base else f"fine-tuned from {self.base}")
        elif self.base and not usual_base:
            parts.append(f"on {self.base}")
        if self.policy:
            parts.append(TITLES.get(self.policy, self.policy))
        return ", ".join(parts)


@dataclass(frozen=True)
class Decoding:
    """A policy, and the other settings that change its output where they differ from the defaults.

    Each threshold is a point of its own, with files of its own.
    """

    policy: PolicySpec
    options: tuple[str, ...] = ()  # such as unknown-keep

    @classmethod
    def of(cls, policy: PolicySpec, settings: Evaluate, engine: str = "") -> "Decoding":
        """`engine`: the precision of an exported run."""
        default, about = Evaluate(), policy.about
        threshold = settings.threshold if policy.threshold is None else policy.threshold
        is_named = about.has_threshold and threshold != default.threshold
        options = [f"unknown-{settings.unknown}"] * (settings.unknown != default.unknown)
        options += [f"ending-{settings.ending}"] * (about.can_end_early and settings.ending != default.ending)
        options += [*settings.guards, *["glossary"] * bool(settings.glossary)]
        options += [settings.precision] * (settings.precision != default.precision) + [engine] * bool(engine)
        return cls(replace(policy, threshold=threshold if is_named else None), tuple(options))

    @classmethod
    def parse(cls, name: str) -> "Decoding":
        """Parse the name in a record. Its policy may be unknown here."""
        match = DECODING.fullmatch(name)
        assert match is not None  # the pattern accepts any name of a policy
        policy, threshold, options = match.groups()
        kind, _, argument = split_name(policy)
        spec = PolicySpec(kind, argument, float(threshold) if threshold else None)
        return cls(spec, tuple(options.split(".")[1:]))

    def __str__(self) -> str:
        return ".".join([str(self.policy), *self.options])


def point_label(policy: PolicySpec, recipe: Recipe | None) -> str:
    """The label of a point on its curve, as the paper writes it: k, a search interval, lambda, or a threshold."""
    if policy.kind in ("full", "wait", "diagonal", "local-agreement", "align-att"):
        return policy.argument
    if policy.kind == "mma":  # each lambda is a model
        return str(recipe.objective.latency_average) if recipe else "?"
    if policy.name == AGENT_TRANSLATION.name:
        return NO_LABEL if policy.threshold is None else str(policy.threshold)
    intervals = recipe.search.intervals if recipe else ()
    return next((f"[{first},{last}]" for first, last in intervals if str(first) == policy.argument), policy.name)


def shown_label(policy: PolicySpec, recipe: Recipe | None) -> str:
    """`point_label` with a symbol such as "k=", for figures and tables of several systems."""
    label = point_label(policy, recipe) or policy.name
    symbols = {"wait": "k=", "diagonal": "k=", "mma": "λ=", "local-agreement": "n=", "align-att": "f="}
    return symbols.get(policy.kind, "") + label


def pair_name(data: Data) -> str:
    """Corpus and languages, such as iwslt15.en-vi. Raw text has another name: its scores are not comparable."""
    languages = f".{data.source}-{data.target}"
    name = (data.corpus or Path(data.dataset).name).removesuffix(languages)
    return name + "-raw" * data.detokenise + languages
