"""Where the text of a recipe is. (Known corpora come with the next change.)"""

from dataclasses import dataclass
from pathlib import Path

from whilst.errors import UserError
from whilst.settings import Data


@dataclass(frozen=True)
class Files:
    """The files of each split: two aligned ones (source, target) or one TSV; no test files: no test split."""

    train: tuple[Path, ...]
    valid: tuple[Path, ...]
    test: tuple[Path, ...]
    note: str = ""  # what whoever reads a result must know of the text


def locate(settings: Data) -> Files:
    """Find the files, fetching or making them where the corpus is a known one."""
    if settings.corpus == "toy":
        return _toy(settings)
    folder = Path(settings.folder)
    for name in ("train", "valid"):
        if not getattr(settings, name):
            raise UserError(f"data.{name}: name two aligned files or one TSV, or set data.corpus")
    train, valid, test = (
        tuple(folder / file for file in files) for files in (settings.train, settings.valid, settings.test)
    )
    return Files(train, valid, test)


def _toy(settings: Data) -> Files:
    from whilst import toy

    if {settings.source, settings.target} != {"src", "tgt"}:
        raise UserError('data.source: the languages of the toy corpus are "src" and "tgt"')
    folder = Path(
        settings.folder or Path(settings.dataset).parent / f"toy-{settings.toy_pairs}-{settings.toy_seed}"
    )
    toy.write(folder, settings.toy_pairs, settings.toy_seed)
    train, valid, test = (
        (folder / f"{split}.{settings.source}", folder / f"{split}.{settings.target}")
        for split in ("train", "valid", "test")
    )
    return Files(train, valid, test)
