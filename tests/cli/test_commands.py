"""The commands on a small corpus, from text to report, and one line for every mistake."""

import dataclasses
import json
import lzma
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, get_type_hints

import pytest
from typer.models import OptionInfo

from tests.helpers.commands import Done, Terminal, whilst
from tests.helpers.runs import ENVIRONMENT, call, changed, short_recipe, write_toml
from whilst import __version__
from whilst.cli import bench
from whilst.cli.main import app, root
from whilst.core.console import ProgressBar, notes
from whilst.core.files import read_json
from whilst.core.settings import Data, Recipe

COMMANDS = ("prepare", "train", "translate", "evaluate", "score", "report")


class Work(NamedTuple):
    """A folder in which all commands were run."""

    folder: Path
    recipe: Path
    run: Path
    output: dict[str, Done]  # by command


@pytest.fixture(scope="module")
def work(toy_data: Data, tmp_path_factory: pytest.TempPathFactory) -> Work:
    """prepare, train, translate, evaluate, score and report."""
    folder = tmp_path_factory.mktemp("commands")
    data = dataclasses.replace(toy_data, dataset=str(folder / "set"), units="bpe", size=60)
    recipe = changed(short_recipe(data, folder / "run"), steps=30, validate_every=15)
    file, run = write_toml(recipe, folder / "recipe.toml"), folder / "run"
    trace = run / "evaluations" / "test.wait-3.jsonl.xz"
    test = Path(data.folder) / "test.src"
    output = {
        "prepare": whilst("prepare", file),
        "train": whilst("train", file, "--device", "cpu"),
        "translate": whilst("translate", run, test, "--policy", "wait-2", "--device", "cpu"),
        "evaluate": whilst("evaluate", run, "--policy", "wait-3", "--policy", "full", "--device", "cpu"),
        "score": whilst("score", trace),
        "report": whilst("report", run / "evaluations", "--out", folder / "report"),
    }
    return Work(folder, file, run, output)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_step_succeeds_without_bars_or_colours(work: Work, command: str) -> None:
    done = work.output[command]
    assert done.code == 0, done.err
    for text in (done.out, done.err):
        assert "\x1b" not in text
        assert "\r" not in text
        assert "Traceback" not in text


def test_each_step_leaves_its_files(work: Work) -> None:
    def names(folder: str) -> set[str]:
        return {path.name for path in (work.folder / folder).iterdir()}

    sides = {f"{split}.{side}" for split in ("train", "valid", "test") for side in ("source", "target")}
    arrays = {f"{name}.{part}.npy" for name in sides for part in ("tokens", "offsets")}
    texts = {f"{name}.txt" for name in sides if not name.startswith("train")}
    languages = {"source.json", "source.split", "target.json", "target.split"}
    assert names("set") == arrays | texts | languages | {"manifest.json"}
    weights = {"model.safetensors", "last.safetensors"}
    figures = {"recipe.json", "history.jsonl", "summary.json", "times.json", ".lock"}
    assert names("run") == weights | languages | figures | {"evaluations"}
    evaluated = {f"test.{policy}.{ending}" for policy in ("wait-3", "full") for ending in ("json", "jsonl.xz")}
    assert names("run/evaluations") == evaluated
    assert names("report") == {"report.md", "curve.png", "curve.svg"}


def test_each_step_says_what_it_found(work: Work) -> None:
    output = work.output
    assert f"dataset: {work.folder / 'set'}" in output["prepare"].out.splitlines()
    assert output["train"].out == ""
    assert output["train"].err.count("step ") == 2
    assert len(output["translate"].out.splitlines()) == 20
    assert output["translate"].err == ""
    for command in ("evaluate", "report"):
        rows = output[command].out
        assert re.search(r"multi-path +wait-3 ", rows)
        assert re.search(r"multi-path +full ", rows)
    assert "as recorded" in output["score"].err
    record = read_json(work.run / "evaluations" / "test.wait-3.json")
    assert f"{record['scores']['al']:.6g}" in output["score"].out
    assert str(work.folder / "report") in output["report"].err


def test_commands_can_be_repeated(work: Work) -> None:
    assert "already prepared" in whilst("prepare", work.recipe).out
    again = whilst("train", work.recipe, "--device", "cpu")
    assert again.code == 0
    assert "nothing left to do" in again.err


# Input and output.


def test_standard_input_and_files_give_the_same(work: Work, toy_data: Data) -> None:
    text = (Path(toy_data.folder) / "test.src").read_bytes()
    done = whilst("translate", work.run, "--policy", "wait-2", "--device", "cpu", stdin=text)
    assert done == work.output["translate"]
    assert whilst("translate", work.run, "-", "--policy", "wait-2", "--device", "cpu", stdin=text) == done


def test_a_trace_from_standard_input(work: Work, tmp_path: Path) -> None:
    text = lzma.decompress((work.run / "evaluations" / "test.wait-3.jsonl.xz").read_bytes())
    (tmp_path / "a.jsonl").write_bytes(text)
    done, of_file = whilst("score", "-", stdin=text), whilst("score", tmp_path / "a.jsonl")
    assert (done.code, done.out) == (0, of_file.out)


def test_empty_lines_stay_where_they_are(work: Work, toy_data: Data) -> None:
    first, second, *_ = (Path(toy_data.folder) / "test.src").read_text(encoding="utf-8").splitlines()
    # A line separator of Unicode's ends no line: files stay aligned.
    text = f"\n{first}\n  \n{second}\u2028\n".encode()
    done = whilst("translate", work.run, "--policy", "wait-2", "--device", "cpu", stdin=text)
    lines = done.out.split("\n")
    expected = work.output["translate"].out.splitlines()
    assert lines == ["", expected[0], "", expected[1], ""]
    assert whilst("translate", work.run, "--device", "cpu", stdin=b"") == Done(0, "", "")


def test_show_has_every_word_read_and_written(work: Work, toy_data: Data) -> None:
    source = (Path(toy_data.folder) / "test.src").read_text(encoding="utf-8").splitlines()[0]
    done = whilst("translate", work.run, "--policy", "wait-2", "--show", "--device", "cpu", stdin=source.encode())
    assert done.code == 0
    shown = done.out.split()
    for word in source.split() + work.output["translate"].out.splitlines()[0].split():
        assert word in shown


def test_a_trace_without_text_is_scored_with_it(work: Work, toy_data: Data, tmp_path: Path) -> None:
    done = whilst("evaluate", work.run, "--policy", "wait-1", "--no-text", "--out", tmp_path, "--device", "cpu")
    assert done.code == 0, done.err
    trace, folder = tmp_path / "test.wait-1.jsonl.xz", Path(toy_data.folder)
    without = whilst("score", trace)
    assert without.code == 0
    assert "give --reference" in without.err
    with_text = whilst("score", trace, "--source", folder / "test.src", "--reference", folder / "test.tgt")
    assert "as recorded" in with_text.err
    wrong = whilst("score", trace, "--reference", folder / "valid.tgt")
    assert one_line(wrong).startswith(f"{folder / 'valid.tgt'}: not the evaluated text")


def test_at_a_terminal_there_is_a_bar(work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DELAY", "REFRESH"):
        monkeypatch.setattr(ProgressBar, name, 0.0)
    monkeypatch.setattr(notes, "is_interactive", True)  # rich decides it when the console is made
    settings = (f"run={tmp_path}", "train.steps=2", "train.log_every=1")
    options = [part for setting in settings for part in ("--set", setting)]
    done = whilst("train", work.recipe, *options, "--device", "cpu", stderr=Terminal)
    assert done.code == 0
    assert re.search(r"training .*2/2 steps .*training loss \d+\.\d+, [\d,]+ tokens/s", done.err)


def test_in_a_pipe_there_is_a_line_now_and_then(
    work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FIRST_LINE", "NEXT_LINES"):
        monkeypatch.setattr(ProgressBar, name, 0.0)
    monkeypatch.setattr("whilst.training.loop.STALE", 0.0)
    settings = (f"run={tmp_path}", "train.steps=3", "train.log_every=2")
    options = [part for setting in settings for part in ("--set", setting)]
    done = whilst("train", work.recipe, *options, "--device", "cpu")
    assert done.code == 0
    for step in (1, 2):  # the second is logged
        line = rf"^training: {step}/3 steps, training loss \d+\.\d+, [\d,]+ tokens/s, \d+ s left$"
        assert re.search(line, done.err, re.MULTILINE)
    assert re.search(r"^step      3  validation loss \d", done.err, re.MULTILINE)


# Help and mistakes.


@pytest.mark.parametrize("command", [*COMMANDS, "new", "explain"])
def test_help_teaches_by_example(command: str) -> None:
    done = whilst(command, "--help")
    assert done.code == 0
    assert "Example" in done.out
    assert len(re.findall(rf"whilst {command} ", done.out)) >= 2 or command == "translate"
    assert f"whilst {command} " in done.out


def test_help_lists_the_commands() -> None:
    done = whilst("--help")
    assert done.code == 0
    for command in (*COMMANDS, "new", "explain", "demo", "live", "serve", "bench"):
        assert re.search(rf"^\W*{command} ", done.out, re.MULTILINE)


HELP_IMPORTS = """
import contextlib, io, sys
from whilst.cli.main import app
for arguments in (["--help"], ["train", "--help"], ["serve", "--help"], ["bench", "decode", "--help"]):
    with contextlib.redirect_stdout(io.StringIO()):
        app(arguments, standalone_mode=False)
print(*{"torch", "numpy", "rich", "matplotlib", "onnxruntime"} & sys.modules.keys())
"""


def test_help_imports_nothing_slow() -> None:
    done = subprocess.run([sys.executable, "-c", HELP_IMPORTS], capture_output=True, text=True, env=ENVIRONMENT)
    assert (done.returncode, done.stdout) == (0, "\n"), done.stderr


@pytest.mark.parametrize(
    "arguments",
    [(), ("trian",), ("train",), ("train", "a", "b"), ("train", "a", "--stesp", "3"), ("train", "a", "--set")],
)
def test_wrong_usage_is_code_2(arguments: tuple[str, ...]) -> None:
    done = whilst(*arguments)
    assert done.code == 2
    assert "Traceback" not in done.err
    assert done.err.startswith("whilst: " if arguments else "Usage: ")


def test_the_version() -> None:
    assert whilst("--version").out == f"whilst {__version__}\n"


def test_options_are_named() -> None:
    """Typer 0.27 names an option after its metavar, `--DEVICE`, if it has no name of its own."""
    commands = [info.callback for one in (app, bench.app) for info in one.registered_commands] + [root]
    nameless = [
        f"{getattr(command, '__name__', '')} {name}"
        for command in commands
        if command is not None
        for name, kind in get_type_hints(command, include_extras=True).items()
        for found in getattr(kind, "__metadata__", ())
        if isinstance(found, OptionInfo) and not str(found.default).startswith("--")  # the first argument
    ]
    assert len(commands) > 20
    assert not nameless


def test_mistakes_in_options_name_the_option() -> None:
    assert "'--port': " in one_line(whilst("serve", "--model", "x", "--port", "99999"))
    assert "'--stage': " in one_line(whilst("bench", "train", "--stage", "serach"))
    assert "'--keep': " in one_line(whilst("live", "--keep", "0"))


def one_line(done: Done) -> str:
    """The complaint, which is one line on stderr, with exit code 2 and nothing else."""
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("whilst: "), done.err
    assert done.err.endswith("\n")
    assert done.err.count("\n") == 1, done.err
    return done.err.removeprefix("whilst: ").strip()


Mistake = Callable[[Work, Path], tuple[str | Path, ...]]
MISTAKES: dict[str, tuple[Mistake, str]] = {
    "no recipe to prepare": (lambda _, empty: ("prepare", empty / "no.toml"), "no.toml: no such recipe"),
    "no recipe to train": (lambda _, empty: ("train", empty / "no.toml"), "no.toml: no such recipe"),
    "unknown key": (
        lambda work, _: ("train", work.recipe, "--set", "train.step=3"),
        "unknown setting 'train.step'; did you mean 'train.steps'?",
    ),
    "wrong type": (lambda work, _: ("train", work.recipe, "--set", "train.steps=many"), "train.steps: must be"),
    "other settings": (
        lambda work, _: ("train", work.recipe, "--set", "model.width=64"),
        "was trained with other settings (model.width)",
    ),
    "no dataset": (
        lambda work, empty: ("train", work.recipe, "--set", f"data.dataset={empty / 'set'}"),
        "set: no such dataset; make it with `whilst prepare`",
    ),
    "a folder that is no dataset": (
        lambda work, empty: ("train", work.recipe, "--set", f"data.dataset={empty}"),
        "not a dataset",
    ),
    "a file for a run": (
        lambda work, _: ("train", work.recipe, "--set", f"run={work.recipe}/below", "--device", "cpu"),
        "recipe.toml",
    ),
    "no text to prepare": (
        lambda work, empty: ("prepare", work.recipe, "--set", f"data.folder={empty}", "--set", "data.dataset=x"),
        "train.src: no such file",
    ),
    "another dataset is there": (
        lambda work, _: ("prepare", work.recipe, "--set", "data.lowercase=true"),
        "--overwrite",
    ),
    "no run to translate": (lambda _, empty: ("translate", empty / "run"), "not a run folder"),
    "no run to evaluate": (lambda _, empty: ("evaluate", empty), "not a run folder"),
    "unknown policy": (lambda work, _: ("translate", work.run, "--policy", "wait3"), "policy 'wait3': unknown"),
    "wait for nothing": (lambda work, _: ("evaluate", work.run, "--policy", "wait-0"), "policy wait-0: K must"),
    "full of what": (lambda work, _: ("evaluate", work.run, "--policy", "full-3"), "full takes no argument"),
    "no such split": (
        lambda work, _: ("evaluate", work.run, "--set", "evaluate.split=dev"),
        "there is no split 'dev', only train, valid, test",
    ),
    "no dataset to evaluate": (
        lambda work, empty: ("evaluate", work.run, "--set", f"data.dataset={empty / 'set'}"),
        "no such dataset",
    ),
    "bits of what is no export": (
        lambda work, _: ("evaluate", work.run, "--precision", "int8"),
        "run is not an export; `whilst export` makes one",
    ),
    "no trace": (lambda _, empty: ("score", empty / "a.jsonl.xz"), "a.jsonl.xz: no such file"),
    "a record for a trace": (
        lambda work, _: ("score", work.run / "evaluations" / "test.wait-3.json"),
        "test.wait-3.json: is a record; name its trace, such as test.wait-3.jsonl.xz",
    ),
    "a damaged trace": (lambda work, _: ("score", work.run / "model.safetensors"), "not valid UTF-8"),
    "nothing to report": (lambda _, empty: ("report", empty), "no evaluation in this folder"),
    "nowhere to report from": (lambda _, empty: ("report", empty / "a"), "a: no such file or folder"),
    "no record": (lambda _, empty: ("report", empty / "a.json"), "a.json: no such file"),
    "no file to translate": (lambda work, empty: ("translate", work.run, empty / "a.txt"), "a.txt: no such file"),
    "no such device": (lambda work, _: ("train", work.recipe, "--device", "gpu"), "--device gpu: write auto, cpu"),
    "a trained setting": (
        lambda work, _: ("evaluate", work.run, "--set", "model.width=64"),
        "was trained with it; change it in `whilst train`",
    ),
    "no agent": (lambda work, _: ("evaluate", work.run, "--policy", "agent-1"), "has no agent; train one"),
    "no such interval": (lambda work, _: ("explain", work.run, "a", "--latency", "2"), "this run knows 1, 3"),
    "nothing to explain": (lambda work, _: ("explain", work.run, " "), "the source sentence is empty"),
    "no such picture": (lambda work, _: ("explain", work.run, "a", "--out", "a.gif"), "must end in .png, .svg"),
    "unsupported device": (lambda work, _: ("translate", work.run, "--device", "meta"), "--device meta: write"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line(work: Work, tmp_path: Path, name: str) -> None:
    arguments, expected = MISTAKES[name]
    assert expected in one_line(whilst(*arguments(work, tmp_path)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["train", "translate", "evaluate"])
def test_a_gpu_that_is_not_there(work: Work, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    place = work.recipe if command == "train" else work.run
    assert one_line(whilst(command, place, "--device", "cuda")).startswith("--device cuda: there is no usable GPU")


@pytest.mark.parametrize("content", [b"a b\nc \xff d\n", b"", b"\n \n"])
def test_text_that_cannot_be_read(work: Work, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "text"
    file.write_bytes(content)
    message = one_line(whilst("translate", work.run, file))
    assert message.startswith(f"{file}:2: not valid UTF-8" if content.strip() else f"{file}: the file is empty")
    if content.strip():
        piped = one_line(whilst("translate", work.run, stdin=content))
        assert piped.startswith("standard input:2: not valid UTF-8")


def test_real_processes_do_the_same(work: Work, tmp_path: Path) -> None:
    """One good and one bad call in a subprocess."""
    bad = call("train", tmp_path / "no.toml")
    assert one_line(Done(bad.returncode, bad.stdout, bad.stderr)) == f"{tmp_path / 'no.toml'}: no such recipe"
    good = call("score", work.run / "evaluations" / "test.wait-3.jsonl.xz")
    assert Done(good.returncode, good.stdout, good.stderr) == work.output["score"]


def test_records_contain_their_command(work: Work) -> None:
    record = json.loads((work.run / "evaluations" / "test.full.json").read_text(encoding="utf-8"))
    assert record["command"].startswith(f"whilst evaluate {work.run} --policy wait-3 --policy full")
    assert record["settings"]["model"]["width"] == 32
    assert Recipe().evaluate.split == record["split"] == "test"
