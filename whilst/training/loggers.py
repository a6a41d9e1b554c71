"""Where the figures of a training go beside history.jsonl: the setting `logger`."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from importlib import import_module
from pathlib import Path

from whilst.core.errors import explaining
from whilst.core.settings import Recipe

Logger = Callable[[int, Mapping[str, float]], object]  # receives the step, and figures by name


def open_logger(recipe: Recipe, step: int) -> AbstractContextManager[Logger]:
    """The logger of a stage that begins or continues at this step."""
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
    """A context manager of the user's own, in a module that is installed or in the current folder."""
    module, _, name = recipe.logger.partition(":")
    if "" not in sys.path:
        sys.path.append("")  # the current folder
    what = f"logger {recipe.logger}"
    with ExitStack() as stack:
        with explaining(what):
            own: Logger = stack.enter_context(getattr(import_module(module), name)(recipe, step))

        def log(step: int, figures: Mapping[str, float]) -> None:
            with explaining(what):
                own(step, figures)

        yield log
