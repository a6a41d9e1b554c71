"""The `translate` command: translations of lines, or their READs and WRITEs."""

import sys
from pathlib import Path

from rich.text import Text

from whilst.core.action_rows import action_rows
from whilst.core.console import console
from whilst.core.distributed import pick_device
from whilst.core.policy_spec import PolicySpec
from whilst.data.text import cleaner, read_lines, split_lines
from whilst.decoding.output import Output
from whilst.decoding.policies import policy_for
from whilst.evaluation.evaluate import translate_lines, with_precision, with_settings, words_with_times
from whilst.model.checkpoint import LoadedRun, load_run
from whilst.model.run_folder import model_folder


def translate_text(
    run: Path, file: Path | None, policy: PolicySpec, show: bool, overrides: list[str], device: str
) -> None:
    trained = with_settings(load_run(model_folder(run, policy), pick_device(device)), overrides)
    recipe = with_precision(trained, trained.recipe.evaluate).recipe
    chosen = policy_for(trained, policy, recipe.evaluate)
    clean = cleaner(recipe.data, recipe.data.source)
    raw = read_lines(file) if file else split_lines(sys.stdin.buffer.read(), "standard input")
    lines = [clean(line) for line in raw]
    filled = [number for number, line in enumerate(lines) if line]
    outputs = translate_lines(trained, [lines[number] for number in filled], chosen, recipe.evaluate)
    done = dict(zip(filled, outputs, strict=True))
    for number, line in enumerate(lines):  # empty lines stay, so that files stay aligned
        if not show:
            print(text_of(trained, line, done[number]) if number in done else "")
        elif number in done:
            width = console.width if console.is_terminal else 100
            console.print(actions_of(trained, line, done[number], width), soft_wrap=True)


def text_of(trained: LoadedRun, line: str, output: Output) -> str:
    return " ".join(word for word, _, _ in words_with_times(line.split(), output, trained))


def actions_of(trained: LoadedRun, line: str, output: Output, width: int) -> Text:
    """The READs and WRITEs of a sentence: below each source word, the words written before the next READ."""
    words = line.split()
    _, word_of_unit = trained.source.encode(words)
    columns: list[list[str]] = [[] for _ in words]
    for word, reads, _ in words_with_times(words, output, trained):
        columns[word_of_unit[min(reads, len(word_of_unit)) - 1] - 1].append(word)
    return action_rows(words, columns, width)
