"""Files that are written whole or not at all."""

import os
from pathlib import Path

import pytest
import torch

from whilst.core.files import write_json, writing_folder
from whilst.model.checkpoint import save_tensors


def test_all_files_have_one_mode(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_json(tmp_path / "a.json", {})
        save_tensors(tmp_path / "a.safetensors", {"x": torch.zeros(2)}, {})
    finally:
        os.umask(before)
    assert {path.name: oct(path.stat().st_mode & 0o777) for path in tmp_path.iterdir()} == {
        "a.json": "0o640",
        "a.safetensors": "0o640",
    }


def test_files_are_on_the_disk_before_they_get_their_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = list[tuple[int, bool]]()

    def record(descriptor: int) -> None:
        named = any((tmp_path / name).exists() for name in ("a.json", "folder"))
        synced.append((os.fstat(descriptor).st_size, named))

    monkeypatch.setattr(os, "fsync", record)
    with writing_folder(tmp_path / "folder") as folder:
        (folder / "b.txt").write_text("12345")
    (tmp_path / "folder" / "b.txt").unlink()
    (tmp_path / "folder").rmdir()
    write_json(tmp_path / "a.json", "1234")
    assert synced == [(5, False), (7, False)]
