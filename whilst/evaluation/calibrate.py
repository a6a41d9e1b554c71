"""The command `whilst calibrate`: measure how far behind the source an agent is, on the development set.

Each policy of the agent is measured at several thresholds. Further thresholds are tried until one has about the AL
of the oracle, which follows the reads that the agent was trained on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np

from whilst.core.console import console, notes, progress_bar
from whilst.core.errors import UserError
from whilst.core.files import sha256_lines
from whilst.core.policy_spec import AGENT_TRANSLATION, PolicySpec
from whilst.data.dataset import Dataset, Split
from whilst.decoding.policies import policy_for
from whilst.evaluation.evaluate import loader, to_sentence, translate_lines, with_precision
from whilst.evaluation.metrics import average_lagging, is_measured, score
from whilst.evaluation.tables import Grid, figure
from whilst.evaluation.trace import Sentence
from whilst.model.checkpoint import LoadedRun
from whilst.model.lags import Lag, LagTable
from whilst.model.run_folder import agent_folder
from whilst.policy.registry import NO_AGENT

SPLIT = "valid"
THRESHOLDS = 0.3, 0.4, 0.5, 0.6, 0.7, 0.8
NEAR = 0.1  # no further threshold is tried if one has the oracle's AL up to this difference
TOLERANCE = 0.3  # a larger difference is reported
TRIES = 5  # further thresholds
COLUMNS = "lag", "al", "al_word", "laal", "sacrebleu"


@dataclass(frozen=True)
class DevelopmentSet:
    """Pairs of a development set, and the run that translates them."""

    trained: LoadedRun
    sources: Sequence[str]
    references: Sequence[str]
    split: Split

    def translate(self, policy: PolicySpec) -> list[Sentence]:
        settings = self.trained.recipe.evaluate
        chosen = policy_for(self.trained, policy, settings, self.split)
        outputs = translate_lines(self.trained, self.sources, chosen, settings)
        pairs = zip(self.sources, self.references, outputs, strict=True)
        return [to_sentence(number, *pair, self.trained) for number, pair in enumerate(pairs)]

    def measure(self, policy: PolicySpec) -> Lag:
        sentences = self.translate(policy)
        measured = [sentence for sentence in sentences if is_measured(sentence)]
        lag = fmean(average_lagging(item.delays, item.source_length, len(item.delays)) for item in measured)
        scores = score(sentences)
        figures = lag, scores.al, scores.al_word, scores.laal, scores.sacrebleu or 0.0
        return Lag(str(policy), *(round(value, 4) for value in figures))


def next_threshold(rows: Sequence[Lag], al: float) -> float:
    """The threshold at which this AL is expected, interpolated. AL rises with the threshold."""
    below, above = ([row for row in rows if (row.al < al) is side] for side in (True, False))
    if not below:
        return min(row.threshold for row in rows) / 2
    low = max(below, key=lambda row: row.threshold)
    if not above:
        return (low.threshold + 1) / 2
    high = min(above, key=lambda row: row.threshold)
    return low.threshold + (al - low.al) / (high.al - low.al) * (high.threshold - low.threshold)


def calibrate_run(run: Path, sentences: int, overrides: list[str], device: str) -> Path:
    """Measure a run's agent; print its table and write it. `sentences`: of the development set, 0 for all."""
    run = agent_folder(run)
    trained = with_precision(loader(overrides, device)(run))
    if trained.agent is None:
        raise UserError(NO_AGENT.format("lag", run))
    dataset = Dataset.open(Path(trained.recipe.data.dataset))
    dataset.require_languages("data.dataset", run, trained.recipe.data)
    dataset.require_units("data.dataset", run)  # the search runs on the dataset's own units
    sources, references = dataset.text(SPLIT)
    chosen = np.linspace(0, len(sources) - 1, min(sentences or len(sources), len(sources))).astype(int).tolist()
    lines = [sources[number] for number in chosen], [references[number] for number in chosen]
    development = DevelopmentSet(trained, *lines, dataset.split(SPLIT).select(chosen))
    rows: list[Lag] = []
    for agent in progress_bar(trained.agents, "measuring", "policies", len(trained.agents)):
        rows += measure_agent(development, agent)
    table = LagTable(sha256_lines(lines[0]), len(chosen), tuple(rows))
    console.print(Grid(("policy", *COLUMNS), [to_cells(row) for row in rows]).to_terminal())
    return table.write(run)


def measure_agent(development: DevelopmentSet, agent: PolicySpec) -> list[Lag]:
    """A row for each threshold, in rising order. The oracle's row comes first if search made the agent's labels."""
    rows = [development.measure(agent.with_default_threshold(threshold)) for threshold in THRESHOLDS]
    if agent == AGENT_TRANSLATION:
        return rows
    oracle = development.measure(PolicySpec("oracle", agent.argument))

    def distance(row: Lag) -> float:
        return abs(row.al - oracle.al)

    for _ in range(TRIES):
        threshold = round(next_threshold(rows, oracle.al), 3)
        if distance(min(rows, key=distance)) > NEAR and threshold not in [row.threshold for row in rows]:
            rows.append(development.measure(agent.with_default_threshold(threshold)))
    best = min(rows, key=distance)
    note = f"{oracle.policy} has AL {oracle.al:.2f}, {best.policy} {best.al:.2f}"
    notes.print(note if distance(best) <= TOLERANCE else f"{note}: no threshold comes nearer")
    return [oracle, *sorted(rows, key=lambda row: row.threshold)]


def to_cells(row: Lag) -> list[str]:
    return [row.policy, *(figure(vars(row)[name]) for name in COLUMNS)]
