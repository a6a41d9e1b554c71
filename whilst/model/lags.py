"""The table of lags that `whilst calibrate` makes: how many words an agent is behind the source under its policies.

It is stored as lags.json beside the agent's weights, or in an export. `at_lag` finds the policy for a lag in it.
"""

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from whilst.core.config import from_json
from whilst.core.errors import UserError
from whilst.core.files import read_json, sha256, write_json
from whilst.core.policy_spec import AtLag, PolicySpec
from whilst.model.run_folder import AGENT, ENGINE_MANIFEST, SHIPPED, WEIGHTS, has_agent, weights_checksum

LAGS = "lags.json"
FORMAT = 1


@dataclass(frozen=True)
class Lag:
    """Lag and quality of one policy on the development set."""

    policy: str  # such as agent-3.threshold-0.6, or the oracle of an interval
    lag: float  # AL in words, computed with the length of the translation, as `whilst live` shows it
    al: float  # this and the three below as in evaluations
    al_word: float
    laal: float
    sacrebleu: float

    @property
    def spec(self) -> PolicySpec:
        return PolicySpec.parse(self.policy)

    @property
    def threshold(self) -> float:
        """The threshold of an agent's policy; 0 if the policy has none."""
        return self.spec.threshold or 0.0


def neighbours(rows: Sequence[Lag]) -> list[tuple[Lag, Lag]]:
    """Pairs of rows with the same interval and consecutive thresholds."""
    ordered = sorted(rows, key=lambda row: (row.spec.name, row.threshold))
    return [pair for pair in itertools.pairwise(ordered) if pair[0].spec.name == pair[1].spec.name]


@dataclass(frozen=True)
class LagTable:
    source_sha256: str  # of the development text that was translated
    sentences: int  # in it
    rows: tuple[Lag, ...]

    @property
    def agents(self) -> list[Lag]:
        return [row for row in self.rows if row.spec.kind == "agent"]

    def find(self, requested: PolicySpec) -> tuple[PolicySpec, str]:
        """The agent's policy that has this lag (`requested` is lag-K) and the best BLEU, and a note for the user.

        Thresholds and BLEU are interpolated linearly between neighbours.
        """
        lag, rows = float(requested.argument), self.agents
        candidates: list[tuple[float, float, PolicySpec]] = []  # BLEU, lag, policy
        for low, high in neighbours(rows):
            share = (lag - low.lag) / (high.lag - low.lag) if high.lag != low.lag else -1.0
            if 0 <= share <= 1:
                threshold = low.threshold + share * (high.threshold - low.threshold)
                bleu = low.sacrebleu + share * (high.sacrebleu - low.sacrebleu)
                candidates.append((bleu, lag, replace(low.spec, threshold=round(threshold, 3))))
        first, last = min(row.lag for row in rows), max(row.lag for row in rows)
        if not first <= lag <= last:
            limits = f"from {math.ceil(10 * first) / 10} to {math.floor(10 * last) / 10} words"
            raise UserError(f"policy {requested}: the lags of this agent are {limits}")
        if not candidates:  # the lag is between those of two intervals
            nearest = min(rows, key=lambda row: abs(row.lag - lag))
            candidates.append((nearest.sacrebleu, nearest.lag, nearest.spec))
        _, lag, policy = max(candidates, key=lambda candidate: candidate[0])
        return policy, f"{requested} is {policy}: {lag:.1f} words behind on the development set"

    def write(self, folder: Path) -> Path:
        """Write the table into the folder of a run or an export, and return its path."""
        path = lags_path(folder)
        write_json(path, {"format": FORMAT, "weights": checksums(folder), **asdict(self)})
        return path


def lags_path(folder: Path) -> Path:
    return folder / AGENT / LAGS if has_agent(folder) else folder / LAGS


def checksums(folder: Path) -> dict[str, str]:
    """Checksums of the weights that a table is valid for; none for an export, whose manifest has all checksums."""
    agent, engine = folder / AGENT / WEIGHTS, folder / SHIPPED / ENGINE_MANIFEST
    sums = {WEIGHTS: weights_checksum(folder)} if (folder / WEIGHTS).is_file() or engine.is_file() else {}
    return sums | ({f"{AGENT}/{WEIGHTS}": sha256(agent)} if agent.is_file() else {})


def read_lags(folder: Path) -> LagTable:
    """The table of a run or export. Raises a UserError if there is none, or if it was made with other weights."""
    path, again = lags_path(folder), "run `whilst calibrate` again"
    damaged = UserError(f"{path}: is damaged or of another version of whilst; {again}")
    if not path.is_file():
        advice = "measure them with `whilst calibrate`" if has_agent(folder) else "calibrate a run with an agent"
        raise UserError(f"{folder}: its lags are not known; {advice}")
    table = read_json(path)
    if not isinstance(table, dict) or table.pop("format", None) != FORMAT:
        raise damaged
    if table.pop("weights", None) != checksums(folder):
        raise UserError(f"{path}: was measured with other weights, which have changed since; {again}")
    try:
        rows = [from_json(Lag, row, f"{path}: rows") for row in table["rows"]]
    except (KeyError, TypeError, AttributeError):
        raise damaged from None
    lags = from_json(LagTable, table | {"rows": rows}, str(path))
    if not lags.agents:
        raise damaged
    return lags


def lag_finder(folder: Path) -> AtLag:
    """A function that returns the agent's policy for one such as lag-3, and any other policy as it is.

    It also returns a note for the user, or "".
    """
    table = functools.cache(functools.partial(read_lags, folder))  # read when first needed

    def find(policy: PolicySpec) -> tuple[PolicySpec, str]:
        return table().find(policy) if policy.kind == "lag" else (policy, "")

    return find


def at_lag(folder: Path, policy: PolicySpec) -> tuple[PolicySpec, str]:
    """Apply `lag_finder` to one policy."""
    return lag_finder(folder)(policy)
