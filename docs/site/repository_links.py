"""Hook of MkDocs: files of the repository that pages link to become part of the site, under repository/.

So `../results/README.md` leads somewhere both in the repository and on the site. Documents that
are added are searched for links in turn. A link to a folder, which a site cannot show, becomes plain text.
"""

import re
from pathlib import Path
from posixpath import normpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
FOLDER = "repository"
LINK = re.compile(r"\[((?:[^][]|\[[^][]*\])*)\]\(([^)#:]+)((?:#[^)]*)?)\)")  # text, relative path, anchor


def _path(document: str, link: str) -> str:
    """Where a link of a document leads, from the root of the repository."""
    return normpath(f"{Path(document).parent}/{link}")


def _document(uri: str) -> str:
    """Path in the repository of a page of the site."""
    return uri.removeprefix(f"{FOLDER}/") if uri.startswith(f"{FOLDER}/") else f"docs/{uri}"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what pages link to outside of docs/."""
    waiting = [_document(page.src_uri) for page in files.documentation_pages()]
    waiting += ["CONTRIBUTING.md", "CHANGELOG.md", "results/README.md"]
    seen = set()
    while waiting:
        path = waiting.pop()
        if path in seen or not (ROOT / path).is_file():
            continue
        seen.add(path)
        if not path.startswith("docs/"):
            files.append(File.generated(config, f"{FOLDER}/{path}", abs_src_path=str(ROOT / path)))
        if path.endswith(".md"):
            waiting += [_path(path, link) for _, link, _ in LINK.findall((ROOT / path).read_text(encoding="utf-8"))]
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Let links between docs/ and the rest of the repository lead into repository/ and back."""
    document = _document(page.file.src_uri)
    up = "../" * page.file.src_uri.count("/")

    def moved(match: re.Match[str]) -> str:
        text, link, anchor = match.groups()
        path = _path(document, link)
        if (ROOT / path).is_dir():
            return text
        uri = path.removeprefix("docs/") if path.startswith("docs/") else f"{FOLDER}/{path}"
        return f"[{text}]({up}{uri}{anchor})"

    return LINK.sub(moved, markdown)
