"""The `translate` command: lines in, translations out, or every READ and WRITE of them."""

import sys
from pathlib import Path

from rich.text import Text

from whilst.checkpoint import Trained, load_run
from whilst.config import override
from whilst.console import console
from whilst.decode import Output
from whilst.evaluate import translate_lines, words_with_times
from whilst.policy import policy
from whilst.processes import pick_device
from whilst.text import cleaner, read_lines


def translate_text(
    run: Path, file: Path | None, policy_name: str, show: bool, overrides: list[str], device: str
) -> None:
    chosen = policy(policy_name)
    trained = load_run(run, pick_device(device))
    recipe = override(trained.recipe, overrides)
    clean = cleaner(recipe.data, recipe.data.source)
    lines = [clean(line) for line in (read_lines(file) if file else sys.stdin.read().splitlines())]
    filled = [number for number, line in enumerate(lines) if line]
    outputs = translate_lines(trained, [lines[number] for number in filled], chosen, recipe.evaluate)
    done = dict(zip(filled, outputs, strict=True))
    for number, line in enumerate(lines):  # an empty line stays one, so that files stay aligned
        if show and number in done:
            console.print(walk(trained, line, done[number]), soft_wrap=True)
        elif not show:
            print(" ".join(trained.target.decode(done[number].units)) if number in done else "")


def walk(trained: Trained, line: str, output: Output) -> Text:
    """One sentence as it happened: source words where they were read, target words where they were written."""
    words = line.split()
    _, word_of_unit = trained.source.encode(words)
    text, shown = Text(), 0

    def read_to(count: int) -> None:
        nonlocal shown
        while shown < count:
            text.append(f" {words[shown]}", style="dim")
            shown += 1

    for word, reads, _ in words_with_times(output, trained.target):
        read_to(word_of_unit[min(reads, len(word_of_unit)) - 1])
        text.append(f" [{word}]", style="bold green")
    read_to(len(words))
    return Text("READ ", style="dim") + Text("[WRITE]", style="bold green") + Text(" |") + text
