"""`whilst live`: in pipes, with slow input, interrupted, with mistakes, and its terminal displays."""

import dataclasses
import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from rich.console import Console
from rich.text import Text

from tests.helpers.commands import whilst
from tests.helpers.decoding import policy
from tests.helpers.runs import CPU, ENVIRONMENT, command, short_recipe
from whilst.core.errors import StoppedError, UserError, note
from whilst.core.policy_spec import PolicySpec, for_latency
from whilst.core.settings import DEFAULT_MODEL, Data, Recipe, Search
from whilst.core.settings import Agent as AgentSettings
from whilst.core.signals import STOP_SIGNALS, handle_signals
from whilst.data.dataset import Dataset
from whilst.data.vocabulary import EOS
from whilst.decoding.batched import translate_batch
from whilst.live.display import Display
from whilst.live.input import HypothesisParser, PlainTextParser, read_chunks
from whilst.live.keyboard import WordEditor
from whilst.live.loading import ModelOptions, open_model
from whilst.live.output import PlainOutput
from whilst.live.session import SentenceEnd, Session, Word
from whilst.live.terminal import DeferredInterrupt, LiveOptions, LiveTranslation, open_outputs, run_live
from whilst.model.agent import Agent
from whilst.model.checkpoint import load_run, save_tensors, write_run
from whilst.model.run_folder import AGENT, SEARCH, choose_policy
from whilst.model.transformer import Translator

PYTORCH = "--engine", "torch"  # whose words are those of the batched loop


@pytest.fixture(scope="module")
def run(toy_dataset: Dataset, toy_data: Data, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained run with an agent of three latencies."""
    folder = tmp_path_factory.mktemp("live") / "run"
    recipe = short_recipe(toy_data, folder)
    recipe = dataclasses.replace(
        recipe, search=Search(intervals=((1, 3), (2, 4), (4, 6))), agent=AgentSettings(hidden=8)
    )
    torch.manual_seed(4)
    for place in (folder, folder / SEARCH):
        write_model(place, recipe, toy_dataset)
    agent = Agent(recipe.agent, recipe.model.width, 3)
    write_run(folder / SEARCH / AGENT, recipe, toy_dataset.source, toy_dataset.target)
    save_tensors(folder / SEARCH / AGENT / "model.safetensors", agent.state_dict(), {})
    return folder


def write_model(folder: Path, recipe: Recipe, dataset: Dataset) -> None:
    write_run(folder, recipe, dataset.source, dataset.target)
    model = Translator(recipe.model, len(dataset.source), len(dataset.target))
    save_tensors(folder / "model.safetensors", model.state_dict(), {})


@pytest.fixture(scope="module")
def lines(toy_dataset: Dataset) -> list[str]:
    return toy_dataset.text("test")[0][:4]


def expected(run: Path, lines: list[str], name: str) -> list[str]:
    trained = load_run(run, CPU)
    limits = trained.recipe.evaluate.limits
    sources = [[*trained.source.encode(line.split()), EOS] for line in lines]
    outputs = translate_batch(trained.model, sources, policy(name), limits)
    return [" ".join(trained.target.decode(output.units)) for output in outputs]


def test_a_pipe(run: Path, lines: list[str], tmp_path: Path) -> None:
    files = f"--srt {tmp_path}/a.srt --vtt {tmp_path}/a.vtt".split()
    stdin = "\n".join(lines).encode()
    done = whilst("live", *PYTORCH, "--model", run, "--latency", "wait-2", *files, stdin=stdin)
    reference = expected(run, lines, "wait-2")
    assert (done.code, done.err) == (0, "")
    assert done.out == "".join(line + "\n" for line in reference)
    assert (tmp_path / "a.vtt").read_text(encoding="utf-8").startswith("WEBVTT\n\n00:00:")
    shown = (tmp_path / "a.srt").read_text(encoding="utf-8").replace("\n", " ").split()
    assert [word for word in shown if word in " ".join(reference).split()] == " ".join(reference).split()


def test_json_lines(run: Path, lines: list[str]) -> None:
    stdin = "\n".join(lines).encode()
    done = whilst("live", *PYTORCH, "--model", run, "--latency", "wait-2", "--json", stdin=stdin)
    rows = [json.loads(line) for line in done.out.splitlines()]
    words = [row for row in rows if "word" in row]
    ends = [row for row in rows if "end" in row]
    assert [row["end"] for row in ends] == [0, 1, 2, 3]
    assert [row["words"] for row in ends] == [len(line.split()) for line in lines]
    for number, line in enumerate(expected(run, lines, "wait-2")):
        assert " ".join(row["word"] for row in words if row["sentence"] == number) == line
    assert [row["source"] for row in rows] == sorted(row["source"] for row in rows)
    assert all(0 <= row["arrived"] <= row["time"] for row in words)


def test_lines_and_empty_lines(run: Path) -> None:
    text = b"kan . musak\nros\n\nkan"
    done = whilst("live", *PYTORCH, "--model", run, "--latency", "full", stdin=text)
    assert done.out.splitlines() == expected(run, ["kan .", "musak ros", "kan"], "full")
    done = whilst("live", *PYTORCH, "--model", run, "--latency", "full", "--lines", stdin=text)
    assert done.out.splitlines() == expected(run, ["kan . musak", "ros", "kan"], "full")


def test_hypotheses_of_a_recogniser(run: Path) -> None:
    lines = b"kan\nkan mu\nkan musak ro\nkan musak ros\nkar musak ros\nkar musak ros ramak\n\nros"
    done = whilst("live", *PYTORCH, "--model", run, "--latency", "full", "--partial", stdin=lines)
    assert done.out.splitlines() == expected(run, ["kan musak ros ramak", "ros"], "full")
    assert done.err == ""


@pytest.mark.parametrize(
    ("arguments", "stdin", "message"),
    [
        (["--latency", "fast"], b"", "latency fast: must be low, medium, high, or a policy"),
        (["--latency", "oracle-1"], b"", "latency oracle-1: must be"),
        (["--latency", "agent-9"], b"", "this run knows agent-1, agent-2, agent-4"),
        (["--latency", "wait-0"], b"", "K must be a whole number"),
        (["--partial", "--lines"], b"", "--partial and --lines"),
        (["--srt", "x", "--vtt", "x"], b"", "cannot be both"),
        (["--show", "--json"], b"", "--show and --json"),
        (["--pace", "-1"], b"", "Invalid value for '--pace'"),
        (["--pace", "1e-305"], b"", "Invalid value for '--pace'"),
        (["--srt", "x", "--vtt", "./x"], b"", "cannot be both"),
    ],
)
def test_mistakes_are_one_line(run: Path, arguments: list[str], stdin: bytes, message: str) -> None:
    done = whilst("live", *PYTORCH, "--model", run, *arguments, stdin=stdin)
    assert done.code == 2
    assert message in done.err
    assert done.err.count("\n") == 1


def test_invalid_bytes_are_not_fatal(run: Path) -> None:
    done = whilst("live", *PYTORCH, "--model", run, "--latency", "full", stdin=b"kan \xff musak\n\nr\xffos\n\nkan")
    assert (done.code, len(done.out.splitlines())) == (0, 3)
    assert done.err.startswith("whilst: standard input:1: not valid UTF-8")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(("partial", "text"), [(True, b"kan\nkan musak ros"), (False, b"kan musak ros")])
def test_an_interrupt_translates_the_words_so_far(
    run: Path, partial: bool, text: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also the last hypothesis, and a word that no space follows."""
    opened = open_model(ModelOptions(str(run), "full", "torch"))

    class Interrupted(io.BytesIO):
        def read1(self, size: int | None = -1) -> bytes:
            if chunk := super().read1(size):
                return chunk
            raise KeyboardInterrupt

    parser = HypothesisParser() if partial else PlainTextParser()
    session = Session(opened.backend(), opened.text)
    live = LiveTranslation(session, parser, [PlainOutput()], lambda: 0.0, words_per_second=1000.0)
    with pytest.raises(KeyboardInterrupt):
        live.run(read_chunks(Interrupted(text)))
    assert capsys.readouterr().out.splitlines() == expected(run, ["kan musak ros"], "full")


def test_closed_standard_input_is_an_error(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(UserError, match="standard input and output: one of them is closed"):
        run_live(ModelOptions(str(run), "full", "torch"), LiveOptions())


def test_words_are_read_at_the_given_rate(run: Path, lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = 0.0, []

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        slept.append(seconds)

    monkeypatch.setattr("whilst.live.terminal.time.sleep", sleep)
    opened = open_model(ModelOptions(str(run), "low", "torch"))
    output = PlainOutput()
    arrivals: list[float] = []
    monkeypatch.setattr(output, "source_word", lambda _, arrived: arrivals.append(arrived))
    session = Session(opened.backend(), opened.text)
    live = LiveTranslation(session, PlainTextParser(), [output], lambda: now, words_per_second=4.0)
    live.run(iter([lines[0].encode()]))
    count = len(lines[0].split())
    assert arrivals == [number / 4 for number in range(count)]
    assert slept == [0.0] + [0.25] * (count - 1)


def test_show_prints_every_action(run: Path, lines: list[str]) -> None:
    done = whilst("live", *PYTORCH, "--model", run, "--latency", "wait-2", "--show", stdin=lines[0].encode())
    assert done.code == 0
    rows = done.out.splitlines()
    read, wrote = ([row for row in rows if row.startswith(name)] for name in ("READ", "WRITE"))
    assert [word for row in read for word in row.split()[1:]] == lines[0].split()
    (reference,) = expected(run, lines[:1], "wait-2")
    assert [word for row in wrote for word in row.split()[1:]] == reference.split()
    assert "lag " in done.out


def test_latencies(run: Path, toy_dataset: Dataset, tmp_path: Path) -> None:
    found = [choose_policy(run, latency) for latency in ("low", "medium", "high")]
    assert found == [(run / SEARCH, PolicySpec.parse(name), "") for name in ("agent-1", "agent-2", "agent-4")]
    assert choose_policy(run, "wait-4") == (run, PolicySpec("wait", "4"), "")
    assert choose_policy(run, "agent-2") == (run / SEARCH, PolicySpec("agent", "2"), "")
    plain = tmp_path / "plain"
    write_model(plain, load_run(run, CPU).recipe, toy_dataset)
    for latency, name in (("low", "wait-1"), ("medium", "wait-3"), ("high", "wait-5")):
        assert choose_policy(plain, latency) == (
            plain,
            PolicySpec.parse(name),
            f"this run has no agent: {latency} is {name}",
        )


def test_low_medium_and_high_are_first_middle_and_last() -> None:
    for agents, reference in (("13579", "159"), ("13", "113"), ("1", "111")):
        known = [PolicySpec("agent", first) for first in agents]
        found = [for_latency(latency, known)[0].argument for latency in ("low", "medium", "high")]
        assert found == [*reference]


def start(*arguments: str | Path) -> "subprocess.Popen[bytes]":
    """With the model of the package, whose exported engine starts much faster than PyTorch."""
    return subprocess.Popen(
        command("live", "--latency", "wait-1", *arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
        preexec_fn=partial(
            signal.signal, signal.SIGHUP, signal.SIG_DFL
        ),  # it is ignored if the tests run under nohup
    )


def send(process: "subprocess.Popen[bytes]", text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(text.encode())
    process.stdin.flush()


def take(process: "subprocess.Popen[bytes]", count: int) -> str:
    """This many words, while the input stays open."""
    assert process.stdout is not None
    words = b""
    while len(words.split()) < count:
        assert select.select([process.stdout], [], [], 60)[0], "timeout"
        found = os.read(process.stdout.fileno(), 1000)
        assert found, process.stderr and process.stderr.read()
        words += found
    return words.decode()


@pytest.mark.parametrize("stop", STOP_SIGNALS)
def test_words_come_while_the_input_is_open_and_a_signal_ends_it(tmp_path: Path, stop: signal.Signals) -> None:
    srt = tmp_path / "a.srt"
    process = start("--srt", srt)
    source = "I think that we"
    written = ""
    send(process, "I ")
    for word in source.split()[1:]:
        send(process, word + " ")  # not even a line
        written += take(process, 1)
    send(process, "half")  # without white space: used if it has been read before the signal
    process.send_signal(stop)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + stop
    assert err == b""
    assert out.endswith(b"\n"), "the end of a sentence"
    opened = open_model(ModelOptions(DEFAULT_MODEL, "wait-1"))
    words = (written + out.decode()).split()
    possible = []
    for text in (source, f"{source} half"):
        session = Session(opened.backend(), opened.text)
        events = session.feed(text) + session.finish()
        possible.append([event.text for event in events if isinstance(event, Word)])
    assert words in possible
    assert " ".join(srt.read_text(encoding="utf-8").split("\n")[2:4]).split()[:3] == words[:3]
    assert srt.read_text(encoding="utf-8").endswith("\n\n")


def test_a_closed_output_ends_the_command() -> None:
    with start() as process:
        send(process, "I think ")
        take(process, 1)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        send(process, "that we are here. We go home. ")
        process.stdin.close()
        assert process.stderr.read() == b""


def test_an_interrupt_is_deferred_until_the_next_wait() -> None:
    interrupt = DeferredInterrupt()
    with handle_signals(STOP_SIGNALS, interrupt.handle):
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(StoppedError), interrupt.waiting():
            pytest.fail("it does not wait")
        with pytest.raises(StoppedError):  # a second signal: at once
            os.kill(os.getpid(), signal.SIGINT)
    interrupt = DeferredInterrupt()
    with handle_signals(STOP_SIGNALS, interrupt.handle), pytest.raises(StoppedError), interrupt.waiting():
        os.kill(os.getpid(), signal.SIGINT)


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=60, legacy_windows=False)


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_display_shows_both_sides_and_the_lag() -> None:
    console = terminal()
    display = Display(console)
    for number, word in enumerate(["ros", "kan", "."], start=1):
        display.source_word(word, 0.0)
        display.target_word(Word(f"w{number}", 0, number, number), 0.0, 0.1)
    display.source_word("over", 0.0)  # beyond the length limit
    note("a note")
    display.sentence_end(SentenceEnd(0, 3, 3), 0.2)
    display.target_word(Word("w4", 1, 4, 1), 0.0, 0.1)
    display.close()
    text = printed(console)
    for part in ("ros kan .", "w1 w2 w3", "lag 1.0 words", "a note", "over", "w4"):
        assert part in text
    assert "\x1b[2m" in text, "dim"
    assert "\x1b[1m" in text, "bold"


def test_typed_words_are_translated_at_the_space() -> None:
    """Before Enter; the word can be edited until then."""
    controller, terminal = pty.openpty()
    modes = termios.tcgetattr(terminal)
    process = subprocess.Popen(
        command("live", "--latency", "wait-1"),
        stdin=terminal,
        stdout=terminal,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT | {"TERM": "xterm", "COLUMNS": "80", "LINES": "30"},
    )
    shown = ""

    def until(wanted: str) -> None:
        nonlocal shown
        while wanted not in shown:
            assert select.select([controller], [], [], 60)[0], shown
            shown += os.read(controller, 4096).decode(errors="replace")

    assert process.stderr is not None
    assert b"type words" in process.stderr.readline()
    while termios.tcgetattr(terminal)[3] & termios.ICANON:
        assert process.poll() is None
        time.sleep(0.01)
    os.write(controller, "Ié\x7f\x1b[D thimk".encode())
    until("1 read, ")
    assert "Ié" not in shown
    os.write(controller, b"\x7f\x7fnk")
    until("think")
    assert "2 read" not in shown, "no space follows it yet"
    os.write(controller, b" ")
    until("2 read, ")
    os.write(controller, b"so\x15it is.\n\x04")
    until("lag ")
    assert process.wait(60) == 0
    assert "I think it is." in shown
    assert termios.tcgetattr(terminal) == modes, "as it was"
    process.stderr.close()
    os.close(controller)
    os.close(terminal)


def test_keys_make_words() -> None:
    editor = WordEditor()
    assert [editor.type(keys) for keys in ("\b", "a", "bc", "\x7f", " ")] == ["", "", "", "", "ab "]
    assert editor.type("one  two\nth\x1b[1;5Cr") == "one  two\n"
    assert (editor.word, editor.ended) == ("thr", False)
    assert (editor.type("ee\x04four"), editor.word, editor.ended) == ("three", "", True)


def test_typed_lines_are_answered(capsys: pytest.CaptureFixture[str]) -> None:
    (output,) = open_outputs(LiveOptions(), typed=True)
    assert isinstance(output, PlainOutput)
    for sentence in range(2):
        for number in (2, 3):
            output.target_word(Word(f"w{number}", sentence, number, number), 0.0, 0.1)
        output.flush()
        output.flush()
        output.target_word(Word("end", sentence, 4, 4), 0.0, 0.1)
        output.sentence_end(SentenceEnd(sentence, 4, 4), 0.2)
    output.close()
    assert capsys.readouterr().out == 2 * "w2 w3\nend\n"


def test_the_lag_of_a_sentence_and_the_mean() -> None:
    console = terminal()
    display = Display(console)
    for sentence, delays in enumerate(([], [1, 2, 3], [3, 3, 3])):
        for word in range(3):
            display.source_word(f"s{word}", 0.0)
        for delay in delays:
            display.target_word(Word("w", sentence, 3 * sentence + delay, delay), 0.0, 0.1)
        display.sentence_end(SentenceEnd(sentence, 3 * sentence + 3, 3), 0.2)
    lines = [line.strip() for line in Text.from_ansi(printed(console)).plain.split("\n")]
    assert [line for line in lines if line.startswith("lag")] == [
        "lag 1.0 words",
        "lag 3.0 words, 2.0 on average",
    ]


def test_help() -> None:
    done = whilst("live", "--help")
    assert done.code == 0
    assert "recogniser | whilst live" in done.out
