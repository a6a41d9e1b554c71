"""Our latency figures of words and of speech against the real `simuleval` package, on the same trace files.

SimulEval pins old versions of packages that we use, so it lives in `simuleval/` beside the environment's
`bin/` (requirements/simuleval.txt) and runs in a process of its own.
"""

import dataclasses
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from whilst.evaluation.longform import latency
from whilst.evaluation.metrics import WORD_MS, average_lagging, counted_reference, score
from whilst.evaluation.passages import paced, read_passages, write_simuleval
from whilst.evaluation.trace import Sentence, read_trace, write_trace

FOLDER = Path(sys.prefix) / "simuleval"

# Reads a trace line by line with SimulEval's own class and prints each metric: corpus mean and per sentence.
SCORE = """
import json, sys
from simuleval.evaluator.instance import LogInstance
from simuleval.evaluator.scorers import get_scorer_class
with open(sys.argv[1], encoding="utf-8") as file:
    instances = {index: LogInstance(line) for index, line in enumerate(file)}
means = {name: get_scorer_class("latency", name)()(instances) for name in ("AL", "LAAL", "AP", "DAL")}
print(json.dumps([means, [instance.metrics for instance in instances.values()]]))
"""


# ATD of text, and figures of speech with and without the time of computing.
SCORE_MORE = """
import json, sys
from simuleval.evaluator.instance import LogInstance, TextToTextInstance
from simuleval.evaluator.scorers import get_scorer_class
def read(path):
    with open(path, encoding="utf-8") as file:
        return {index: LogInstance(line) for index, line in enumerate(file)}
texts = {index: TextToTextInstance(index, None, None) for index in read(sys.argv[1])}
for index, line in read(sys.argv[1]).items():
    texts[index].delays = line.delays
names = ("AL", "LAAL", "AP", "DAL", "ATD")
speech = [
    {name: get_scorer_class("latency", name)(computation_aware=aware)(read(sys.argv[2])) for name in names}
    for aware in (False, True)
]
print(json.dumps([get_scorer_class("latency", "ATD")()(texts), *speech]))
"""


def simuleval(*arguments: str) -> str:
    if not (FOLDER / "simuleval").is_dir():
        command = f"pip install --no-deps --target {FOLDER} -r requirements/simuleval.txt"
        pytest.fail(f"the simuleval package is not in {FOLDER}: {command}")
    result = subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | {"PYTHONPATH": str(FOLDER)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def make_trace(path: Path, with_text: bool) -> list[Sentence]:
    """Sentences of all shapes: short and long outputs, sources not read to the end, one output empty."""
    draw = random.Random(7)
    sentences = []
    for index in range(60):
        source, reference = draw.randint(1, 25), draw.randint(0 if index == 5 else 1, 25)
        target = 0 if index == 3 else draw.randint(1, 30)
        delays = tuple(sorted(draw.randint(1, source) for _ in range(target)))
        words = [f"w{draw.randint(0, 9)}" for _ in range(target)]
        sentences.append(
            Sentence(
                index=index,
                prediction=" ".join(words),
                delays=delays,
                elapsed=tuple(float(i) for i in range(target)),
                reads=delays,
                source_length=source,
                source_units=source,
                reference_length=reference,
                source=" ".join(["s"] * source),
                reference=" ".join(["w1"] * reference),
            )
        )
    write_trace(path, sentences, with_text)
    return read_trace(path)


def test_simuleval_agrees_on_every_sentence_and_on_the_corpus(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    sentences = make_trace(path, with_text=True)
    means, each = json.loads(simuleval("-c", SCORE, str(path)))
    ours = score(sentences)
    assert ours.empty == 1
    assert ours.al_word == pytest.approx(means["AL"], abs=1e-9)
    assert ours.laal == pytest.approx(means["LAAL"], abs=1e-9)
    assert ours.ap == pytest.approx(means["AP"], abs=1e-9)
    assert ours.dal == pytest.approx(means["DAL"], abs=1e-9)
    assert len(each) == len(sentences)
    for sentence, theirs in zip(sentences, each, strict=True):
        if not sentence.delays:
            assert theirs == {}
            continue
        alone = score([dataclasses.replace(sentence, reference=None)])
        assert [alone.al_word, alone.laal, alone.ap, alone.dal] == pytest.approx(
            [theirs["AL"], theirs["LAAL"], theirs["AP"], theirs["DAL"]], abs=1e-9
        )


def test_simulevals_command_scores_our_trace(tmp_path: Path) -> None:
    sentences = make_trace(tmp_path / "instances.log", with_text=True)
    (tmp_path / "config.yaml").write_text("source_type: text\ntarget_type: text\n")
    metrics = ["--latency-metrics", "AL", "LAAL", "AP", "DAL"]
    command = "from simuleval.cli import main; main()"
    printed = simuleval("-c", command, "--score-only", "--output", str(tmp_path), *metrics)
    names, (_, *values) = (line.split() for line in printed.splitlines()[-2:])
    theirs = dict(zip(names, map(float, values), strict=True))
    ours = score(sentences, [sentence.reference or "" for sentence in sentences])
    assert ours.sacrebleu is not None
    assert [theirs[name] for name in ("BLEU", "AL", "LAAL", "AP", "DAL")] == pytest.approx(
        [ours.sacrebleu, ours.al_word, ours.laal, ours.ap, ours.dal], abs=5.1e-4
    )


def test_without_text_simuleval_uses_the_hypothesis_length(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    sentences = make_trace(path, with_text=False)
    _, each = json.loads(simuleval("-c", SCORE, str(path)))
    sentence, theirs = sentences[0], each[0]
    assert theirs["AL"] == pytest.approx(
        average_lagging(sentence.delays, sentence.source_length, len(sentence.delays))
    )
    assert counted_reference(sentence) != len(sentence.delays)  # or the line above would show nothing


def test_atd_and_figures_of_speech_agree(tmp_path: Path) -> None:
    text, speech = tmp_path / "trace.jsonl", tmp_path / "instances.log"
    sentences = make_trace(text, with_text=True)
    passages = [paced(sentence) for sentence in sentences]
    write_simuleval(speech, passages)
    atd, *theirs = json.loads(simuleval("-c", SCORE_MORE, str(text), str(speech)))
    ours = score(sentences)
    assert ours.atd == pytest.approx(atd, abs=1e-9)
    for aware in (False, True):
        figures = latency(read_passages(speech), aware, is_long=False)
        assert {name: figures[name] for name in theirs[aware]} == pytest.approx(theirs[aware], rel=1e-12)
    assert ours.al_ca == pytest.approx(theirs[True]["AL"] / WORD_MS)
    assert ours.laal_ca == pytest.approx(theirs[True]["LAAL"] / WORD_MS)
