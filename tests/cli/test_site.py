"""The documentation builds as a site, without a warning and without the network."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MKDOCS = shutil.which("mkdocs", path=f"{ROOT / '.venv/docs/bin'}:{os.environ['PATH']}")


@pytest.mark.slow
@pytest.mark.skipif(MKDOCS is None, reason="MkDocs is not installed; `make docs` installs it")
def test_site_builds_without_warnings(tmp_path: Path) -> None:
    assert MKDOCS is not None
    no_network = dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")
    command = [MKDOCS, "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | no_network, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for page in ("index.html", "tutorial.html", "repository/results/index.html", "search/search_index.json"):
        assert (tmp_path / "site" / page).is_file(), page
    page = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert re.findall(r'(?:src|rel="stylesheet" href)="(https?:[^"]*)', page) == []
