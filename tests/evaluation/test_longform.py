"""Whole talks: words are divided among sentences; figures by hand, and against OmniSTEval and simulstream.

The two packages need others that whilst does not; without these they live in `talks/` beside the environment's
`bin/` (requirements/talks.txt) and run in a process of their own.
"""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.commands import whilst
from whilst.core.errors import UserError
from whilst.evaluation.longform import Segment, latency, passage_quality, read_talks, resegment
from whilst.evaluation.passages import Passage, write_simuleval, write_simulstream

FOLDER = Path(sys.prefix) / "talks"
REFERENCES = ["das ist gut .", "wir gehen heim"]
SEGMENTS = [Segment("talk", 0.0, 1200.0), Segment("talk", 1500.0, 900.0)]
TALK = Passage(
    "talk",
    ("das", "wird", "gut", ".", "gehen", "wir", "heim"),
    (600.0, 600.0, 900.0, 1200.0, 1800.0, 2100.0, 2400.0),
    (700.0, 700.0, 950.0, 1300.0, 1800.0, 2100.0, 2500.0),
    2400.0,
)


def divided() -> list[Passage]:
    return resegment(TALK, list(zip(SEGMENTS, REFERENCES, strict=True)), "soft")


def test_words_go_to_their_sentences_with_times_from_its_beginning() -> None:
    first, second = divided()
    assert (first.prediction, second.prediction) == ("das wird gut .", "gehen wir heim")
    assert first.delays == (600, 600, 900, 1200)
    assert second.delays == (300, 600, 900)
    assert (first.end, second.end) == (2400, 900)


def test_figures_by_hand() -> None:
    figures = latency(divided(), aware=False, is_long=True)
    # 300 ms a word in the first sentence, whose words all come before the recording ends
    assert figures["YAAL"] == pytest.approx(((600 + 300 + 300 + 300) / 4 + (300 + 300) / 2) / 2)
    # the first is over when the sentence is, the last word of the second counts
    assert figures["AL"] == pytest.approx(((600 + 300 + 300 + 300) / 4 + 300) / 2)
    assert figures["LAAL"] == figures["AL"]
    aware = latency(divided(), aware=True, is_long=True)
    assert aware["AL"] == pytest.approx(((700 + 400 + 350 + 400) / 4 + (300 + 300 + 400) / 3) / 2)
    assert passage_quality(divided())["sacrebleu"][0] < 100


words = st.lists(st.sampled_from(["ja", "nein", "ist", "gut", ".", "heim", "Haus"]), max_size=12)


@given(words, st.lists(words, min_size=1, max_size=4))
def test_no_word_is_lost_and_their_order_stays(hypothesis: list[str], references: list[list[str]]) -> None:
    if not any(references):
        return
    talk = Passage("t", tuple(hypothesis), tuple(map(float, range(len(hypothesis)))), (), 99.0)
    sentences = [(Segment("t", 10.0 * i, 10.0), " ".join(one)) for i, one in enumerate(references)]
    found = resegment(talk, sentences, "soft")
    assert [word for one in found for word in one.words] == hypothesis
    assert len(found) == len(references)
    if hypothesis == [word for one in references for word in one]:
        filled = [list(one.words) for one in found]
        assert sum(map(len, filled)) == len(hypothesis)


@given(st.lists(words.filter(bool), min_size=1, max_size=4))
def test_a_perfect_translation_is_divided_as_the_reference(references: list[list[str]]) -> None:
    perfect = [f"{word}{number}{place}" for number, one in enumerate(references) for place, word in enumerate(one)]
    lengths = [len(one) for one in references]
    texts = [" ".join(perfect[sum(lengths[:i]) : sum(lengths[: i + 1])]) for i in range(len(lengths))]
    talk = Passage("t", tuple(perfect), tuple(map(float, range(len(perfect)))), (), 99.0)
    found = resegment(talk, [(Segment("t", 0.0, 1.0), text) for text in texts], "soft")
    assert [one.prediction for one in found] == texts


def test_talks_in_words_by_the_source_text(tmp_path: Path) -> None:
    rows = [{"word": word, "source": at, "arrived": at / 2, "time": at} for word, at in (("ja", 1), ("gut", 4))]
    lines = [*rows, {"end": 1, "source": 4}]
    (tmp_path / "talk.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    (tmp_path / "talk.en").write_text("oh yes\nvery good\n")
    (tmp_path / "talk.de").write_text("ja\nsehr gut\n")
    paths = tmp_path / "talk.jsonl", tmp_path / "talk.en", tmp_path / "talk.de"
    first, second = read_talks(*paths, "soft")
    assert (first.delays, second.delays, second.source_length) == ((1,), (2,), 2)
    done = whilst(
        "score", paths[0], "--segments", paths[1], "--reference", paths[2], "--out", tmp_path / "out.jsonl"
    )
    assert done.code == 0, done.err
    assert "LongYAAL" in done.out
    assert "latency in source words" in done.out
    assert whilst("score", tmp_path / "out.jsonl").code == 0
    (tmp_path / "talk.en").write_text("oh yes\nvery\n")
    with pytest.raises(UserError, match=r"talk\.en: ends before talk.jsonl does"):
        read_talks(*paths, "soft")


@pytest.mark.parametrize(
    ("segments", "message"),
    [
        ("{}", "must be a list of segments"),
        ("[{}]", "segment 1: wav: must be text"),
        ('[{"wav": "talk", "offset": 0, "duration": 0}]', "segment 1: offset and duration"),
        ('[{"wav": "talk", "offset": 0, "duration": 1}]', "has 1 sentences"),
        ("[", "cannot be read"),
    ],
)
def test_wrong_segments_are_named(tmp_path: Path, segments: str, message: str) -> None:
    write_simuleval(tmp_path / "instances.log", [TALK])
    (tmp_path / "talks.json").write_text(segments)
    (tmp_path / "ref").write_text("\n".join(REFERENCES))
    with pytest.raises(UserError, match=message):
        read_talks(tmp_path / "instances.log", tmp_path / "talks.json", tmp_path / "ref", "soft")


def test_logs_without_distinct_talks_are_refused(tmp_path: Path) -> None:
    log, segments, reference = tmp_path / "instances.log", tmp_path / "talks.json", tmp_path / "ref"
    segments.write_text(json.dumps([{"wav": "talk", "offset": at, "duration": 1} for at in (0, 1)]))
    reference.write_text("\n".join(REFERENCES))
    write_simuleval(log, [TALK, TALK])
    with pytest.raises(UserError, match="two talks have the same file name"):
        read_talks(log, segments, reference, "soft")


THEIRS = """
import json, sys, yaml
from types import SimpleNamespace
from omnisteval.data import get_segmentation_order, load_hypothesis_jsonl, load_reference
from omnisteval.resegment import resegment
from omnisteval.scoring import ALScorer, APScorer, DALScorer, LAALScorer, SacreBLEUScorer, YAALScorer
from simulstream.metrics.readers import LogReader, YamlReferenceReader
from simulstream.metrics.scorers.latency import LatencyScoringSample
from simulstream.metrics.scorers.latency.stream_laal import StreamLaal
words, segments, texts = load_reference("talks.yaml", "ref", False, False)
spoken = load_hypothesis_jsonl("instances.log", False, get_segmentation_order(segments), False)
instances, _ = resegment(words, spoken, segments, texts)
scorers = {"AL": ALScorer, "LAAL": LAALScorer, "AP": APScorer, "DAL": DALScorer}
found = [{name: make(aware)(instances) for name, make in scorers.items()} for aware in (False, True)]
for aware in (False, True):
    found[aware]["YAAL"] = YAALScorer(aware, is_longform=True)(instances)
short = [YAALScorer(aware)(instances) for aware in (False, True)]
predictions = [instance.prediction for instance in instances]
log = LogReader(SimpleNamespace(detokenizer_type="simuleval", latency_unit="word"), "metrics.jsonl")
outputs, references = log.final_outputs_and_latencies(), YamlReferenceReader("talks.yaml", "ref").references
samples = [LatencyScoringSample(name, outputs[name], references[name]) for name in references]
stream = StreamLaal(SimpleNamespace(latency_unit="word")).score(samples)
stream = [stream.ideal_latency, stream.computational_aware_latency]
print(json.dumps([found, short, predictions, SacreBLEUScorer()(instances), stream]))
"""


def make_talks(draw: random.Random) -> tuple[list[Passage], list[dict[str, object]], list[str]]:
    """Talks whose words are partly those of the reference: changed, left out, inserted, in another order."""
    known = [f"{first}{second}" for first in ("ba", "Ku", "le", "mi") for second in ("sa", "ton", "gi", "rur")]
    talks, segments, references = [], [], []
    for name in ("first", "second", "third"):
        offset, spoken = 0.5, list[str]()
        for _ in range(draw.randint(4, 9)):
            text = [*draw.choices([*known, ","], k=draw.randint(1, 12)), "."]
            duration = round(draw.uniform(1, 8), 2)
            segments.append({"wav": f"{name}.wav", "offset": round(offset, 2), "duration": duration})
            offset += duration + draw.choice([0, 0.75])
            references.append(" ".join(text))
            spoken += [draw.choice(known) if draw.random() < 0.2 else word for word in text if draw.random() < 0.85]
        spoken[0] = known[0]
        times = sorted(round(draw.uniform(300, 1000 * offset + 2000)) for _ in spoken)
        elapsed = [time + 100 * place for place, time in enumerate(times)]
        talks.append(Passage(name, tuple(spoken), tuple(times), tuple(elapsed), 1000 * offset))
    return talks, segments, references


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_omnisteval_and_simulstream_agree(tmp_path: Path, seed: int) -> None:
    if not (FOLDER / "omnisteval").is_dir():
        pytest.skip(f"no OmniSTEval: pip install --no-deps --target {FOLDER} -r requirements/talks.txt")
    talks, segments, references = make_talks(random.Random(seed))
    write_simuleval(tmp_path / "instances.log", talks)
    write_simulstream(tmp_path / "metrics.jsonl", talks)
    (tmp_path / "talks.yaml").write_text(json.dumps(segments))
    (tmp_path / "ref").write_text("\n".join(references) + "\n")
    paths = tmp_path / "instances.log", tmp_path / "talks.yaml", tmp_path / "ref"
    environment = os.environ | {"PYTHONPATH": f"{FOLDER}{os.pathsep}{Path(__file__).parents[2]}"}

    def run(code: str) -> str:
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    figures, short, predictions, bleu, stream = json.loads(run(THEIRS).splitlines()[-1])
    ours = read_talks(*paths, "soft")
    assert [one.prediction for one in ours] == predictions
    for aware in (False, True):
        found = latency(ours, aware, is_long=True)
        assert found == pytest.approx(figures[aware], abs=1e-9, rel=1e-12)
        assert latency(ours, aware, is_long=False)["YAAL"] == pytest.approx(short[aware], abs=1e-9)
    assert passage_quality(ours)["sacrebleu"][0] == pytest.approx(bleu, abs=1e-9)
    code = "from whilst.evaluation.longform import *; import json\n"
    code += f"found = read_talks(*map(Path, {[*map(str, paths)]}), 'mwer')\n"
    code += "print(json.dumps([latency(found, aware, True)['LAAL'] for aware in (False, True)]))"
    assert json.loads(run(code)) == pytest.approx([1000 * one for one in stream], rel=1e-9)
