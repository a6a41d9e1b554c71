"""Policies in a file of their own: by words, by tensors, at random, through every command."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import whilst
from tests.helpers.commands import whilst as command
from tests.helpers.policies import FILE, forgotten
from tests.helpers.random_runs import make_varied_run
from tests.server.test_serve import serve_process
from whilst.core import policy_spec
from whilst.core.policy_spec import KINDS
from whilst.core.settings import Data
from whilst.data.dataset import Dataset
from whilst.data.prepare import prepare
from whilst.evaluation.record import read_records
from whilst.evaluation.trace import read_trace
from whilst.policy.registry import register_files

PAGE = (Path(__file__).parents[2] / "docs" / "policies.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    with forgotten():
        yield


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(FILE, encoding="utf-8")
    return tmp_path / "mine.py"


@pytest.fixture(scope="module", params=["word", "bpe", "sentencepiece"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, toy_data: Data) -> Path:
    folder = tmp_path_factory.mktemp("own")
    data = replace(toy_data, dataset=str(folder / "set"), units=request.param, size=60)
    prepare(data)
    return make_varied_run(folder / "run", data, Dataset.open(folder / "set"))


def test_every_command_knows_them_by_their_names(run: Path, mine: Path, tmp_path: Path) -> None:
    policies = "ends-2", "ends-4", "chance", "wait-2"
    named = [text for policy in policies for text in ("--policy", policy)]
    done = command("evaluate", run, "--policy-file", mine, *named, "--out", tmp_path / "found", "--device", "cpu")
    assert done.code == 0, done.err
    opened = whilst.open_model(run, engine="torch", device="cpu")
    for policy in policies[:3]:
        batched = read_trace(tmp_path / "found" / f"test.{policy}.jsonl.xz")
        lines = [sentence.source or "" for sentence in batched]
        live = opened.translate(lines, policy)
        assert [one.reads for one in live] == [one.reads for one in batched]
        assert [one.words for one in live] == [one.words for one in batched]
    text = tmp_path / "text"
    text.write_text("\n".join(lines), encoding="utf-8")
    done = command("translate", run, text, "--policy-file", mine, "--policy", "chance", "--device", "cpu")
    assert done.out.splitlines() == [one.prediction for one in batched]
    done = command(
        "live", "--model", run, "--policy-file", mine, "--latency", "chance", "--lines", stdin=text.read_bytes()
    )
    assert done.code == 0, done.err
    assert done.out.split() == " ".join(one.prediction for one in batched).split()
    for kind in ("ends", "chance"):
        del KINDS[kind]  # reports need no file
    assert {str(record.system) for record in read_records([tmp_path / "found"])} == {
        "ends, on multi-path",
        "chance, on multi-path",
        "multi-path",
    }
    assert command("report", tmp_path / "found", "--out", tmp_path / "report").code == 0
    assert "| ends, on multi-path" in (tmp_path / "report" / "report.md").read_text(encoding="utf-8")


def test_words_are_whole(run: Path) -> None:
    """A decision at a part of a word would differ: the words of the source, and only they, are seen."""
    seen: set[str] = set()

    class Spy(whilst.WordPolicy):
        def write(self, read: list[str], written: list[str]) -> bool:
            seen.update(read)
            translated.update(written)
            return len(read) > len(written)

    translated: set[str] = set()
    whilst.register_policy("spy", lambda spec, context: Spy())  # noqa: ARG005
    lines, _ = Dataset.open(run.parent / "set").text("test")
    [*sentences] = whilst.open_model(run, engine="torch", device="cpu").translate(lines[:20], "spy")
    assert seen <= set(" ".join(lines[:20]).split()) | {"<unk>"}
    assert translated <= {word for sentence in sentences for word in sentence.words} | {"<unk>"}


@pytest.mark.slow
def test_workers_of_a_server_know_them(toy_data: Data, toy_dataset: Dataset, mine: Path, tmp_path: Path) -> None:
    run = make_varied_run(tmp_path / "run", toy_data, toy_dataset)
    [line, *_], _ = toy_dataset.text("test")
    register_files([mine])
    wanted = whilst.open_model(run, engine="torch", device="cpu").translate([line], "ends-2")[0]
    with (
        serve_process("--model", run, "--policy-file", mine, "--workers", "2") as server,
        server.connect() as client,
    ):
        assert client.start(latency="ends-2")["latency"] == "ends-2"
        client.send_words(line)
        client.finish()
        client.receive_until("final")
        assert [word for word, _, _ in client.words] == list(wanted.words)


def test_the_examples_of_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    by_words, by_tensors = EXAMPLES
    (tmp_path / "mine.py").write_text(by_words, encoding="utf-8")
    sentence = b"When I was ten, my father gave me a radio."
    done = command("live", "--policy-file", tmp_path / "mine.py", "--latency", "comma-5", "--show", stdin=sentence)
    assert done.code == 0, done.err
    [found] = whilst.open_model("en-vi", engine="torch").translate([sentence.decode()], "comma-5")
    assert found.delays[0] == 4  # "ten,"
    exec(compile(by_tensors, "docs/policies.md", "exec"), {"__name__": "example"})
    assert capsys.readouterr().out.endswith(")\n")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (None, "no such file"),
        ("x =", "mine.py:1: SyntaxError: invalid syntax"),
        ("\nx = 1 / 0", "mine.py:2: ZeroDivisionError: division by zero"),
        ("import nothing_of_that_name", "No module named 'nothing_of_that_name'"),
        ("x = 1", "registers no policy; call whilst.register_policy in it"),
        (
            "import whilst\nwhilst.register_policy('wait', None)",
            "mine.py:2: ValueError: policy kind 'wait': must be new",
        ),
        (
            FILE.replace("return len(read)", "return 'yes' or len(read)"),
            "policy ends-2: write must return True or False, not 'yes'",
        ),
        (
            FILE.replace("assert all(read)", "read[99]"),
            "policy ends-2: mine.py:10: IndexError: list index out of range",
        ),
    ],
)
def test_a_mistake_is_one_line(
    code: str | None, message: str, tmp_path: Path, toy_data: Data, toy_dataset: Dataset
) -> None:
    if code is not None:
        (tmp_path / "mine.py").write_text(code, encoding="utf-8")
    run = make_varied_run(tmp_path / "run", toy_data, toy_dataset)
    arguments = "--policy-file", tmp_path / "mine.py", "--policy", "ends-2", "--device", "cpu"
    done = command("translate", run, *arguments, stdin=toy_dataset.text("test")[0][0].encode())
    assert (done.code, done.err.count("\n")) == (2, 1), done.err
    assert message in done.err


def test_exports_name_the_other_engine(mine: Path) -> None:
    done = command("live", "--policy-file", mine, "--latency", "ends-2", "--engine", "onnx", stdin=b"a")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "others need PyTorch" in done.err


def test_packages_offer_them(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    about = mine.parent / "offer-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: offer\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[whilst.policies]\nends = offered\nbroken = nowhere\n")
    mine.rename(mine.with_name("offered.py"))
    monkeypatch.syspath_prepend(str(mine.parent))
    policy_spec.installed.cache_clear()
    try:
        assert whilst.PolicySpec.parse("ends-02").count == 2
        with pytest.raises(whilst.UserError, match=r"or broken$"):
            whilst.PolicySpec.parse("nothing")
        with pytest.raises(whilst.UserError, match=r"policy broken, of nowhere: .*No module named 'nowhere'"):
            whilst.PolicySpec.parse("broken")
    finally:
        policy_spec.installed.cache_clear()
