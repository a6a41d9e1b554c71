"""Loggers, to which the figures of training go in addition to history.jsonl: the setting `logger`."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from importlib import import_module
from pathlib import Path

from whilst.core.errors import as_user_error
from whilst.core.settings import Recipe

Logger = Callable[[int, Mapping[str, float]], object]  # called with the step and the figures by name


def open_logger(recipe: Recipe, step: int) -> AbstractContextManager[Logger]:
    """Open the logger of a stage that begins, or continues, at this step."""
    if not recipe.logger:
        return nullcontext(lambda step, figures: None)  # noqa: ARG005
    return (tensorboard if recipe.logger == "tensorboard" else imported)(recipe, step)


@contextmanager
def tensorboard(recipe: Recipe, step: int) -> Iterator[Logger]:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(Path(recipe.run) / "tensorboard"), purge_step=step + 1) as writer:

        def log(step: int, figures: Mapping[str, float]) -> None:
            for name, value in figures.items():
                writer.add_scalar(name, value, step)

        yield log


@contextmanager
def imported(recipe: Recipe, step: int) -> Iterator[Logger]:
    """Open a logger of the user's own: a context manager in an installed module or in the current folder."""
    module, _, name = recipe.logger.partition(":")
    if "" not in sys.path:
        sys.path.append("")  # the current folder
    title = f"logger {recipe.logger}"
    with ExitStack() as stack:
        with as_user_error(title):
            user_log: Logger = stack.enter_context(getattr(import_module(module), name)(recipe, step))

        def log(step: int, figures: Mapping[str, float]) -> None:
            with as_user_error(title):
                user_log(step, figures)

        yield log
