"""Everything that documents refer to exists: link targets, files and folders of the checkout, classes and their members."""

import ast
import re
from pathlib import Path

import pytest

from protocol.api_keys import ApiKey
from tests.support.documents import DOCUMENTS, ROOT

FOLDERS = "protocol|quota|proxy|pipeline|metering_format|sluice|sluice_cli|tests|bench|examples|docs|deploy"
LINK = re.compile(r"\]\(([^)\s]+)\)")
PATH = re.compile(rf"`((?:{FOLDERS})/[\w./-]*)`")
ROW = re.compile(r"^\| `(?P<folder>[\w/]+/)` \| (?P<contents>.+) \|$", re.MULTILINE)
FILE_OF_FOLDER = re.compile(r"`([\w./-]+(?:\.py|/))`")
CLASS = re.compile(r"`([A-Z]\w*[a-z]\w*)(?:\.(\w+))?`")
ARCHITECTURE = sorted((ROOT / "docs/explanation").glob("*.md"))
FOREIGN = {*(key.name.replace("_", "").lower() for key in ApiKey), "hypothesis", "intflag"}
"""Names in these pages that are APIs of Kafka, or classes of libraries."""


def broken_links(document: Path) -> list[str]:
    """Return the relative links of a document whose file does not exist."""
    links = [link.split("#")[0] for link in LINK.findall(document.read_text()) if "://" not in link and not link.startswith("#")]
    return [link for link in links if not (document.parent / link).exists()]


def anchors(document: Path) -> set[str]:
    """Return the anchors of a document's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_anchors(document: Path) -> list[str]:
    """Return the links of a document to headings that do not exist."""
    targets = [(link, *link.split("#")) for link in LINK.findall(document.read_text()) if "#" in link and "://" not in link]
    return [link for link, path, anchor in targets if anchor not in anchors(document.parent / path if path else document)]


def missing_paths(text: str) -> list[str]:
    """Return the paths from the root of the checkout that a text names and that do not exist."""
    return [name for name in PATH.findall(text) if not (ROOT / name).exists()]


def missing_in_rows(text: str) -> list[str]:
    """Return the paths in the table rows of a folder that exist neither in that folder nor at the root."""
    return [
        f"{row['folder']}{name}"
        for row in ROW.finditer(text)
        for name in FILE_OF_FOLDER.findall(row["contents"])
        if not (ROOT / row["folder"] / name).exists() and not (ROOT / name).exists()
    ]


def names_of_class(node: ast.ClassDef) -> set[str]:
    """Return the methods, fields, attributes and slots of a class."""
    found = {inner.name for inner in ast.walk(node) if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)}
    found |= {inner.attr for inner in ast.walk(node) if isinstance(inner, ast.Attribute)}
    found |= {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    return found


@pytest.fixture(scope="module")
def classes() -> dict[str, set[str]]:
    """Return the member names of each class of the checkout; classes of the same name share one set."""
    found: dict[str, set[str]] = {}
    for folder in FOLDERS.split("|"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    found.setdefault(node.name, set()).update(names_of_class(node))
    return found


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_and_paths_are_there(document: Path) -> None:
    """Every relative link has its file and its heading, and every file or folder that a document names exists."""
    text = document.read_text()
    assert broken_links(document) + missing_paths(text) + missing_in_rows(text) == []
    assert broken_anchors(document) == []


@pytest.mark.parametrize("document", ARCHITECTURE, ids=lambda path: path.stem)
def test_classes_that_explanations_name_are_there(document: Path, classes: dict[str, set[str]]) -> None:
    """Every `Name` in an explanation is a class of the checkout or an API of Kafka, and every `Name.member` is a member of that class."""
    named = [(name, member) for name, member in CLASS.findall(document.read_text()) if name.lower() not in FOREIGN]
    assert [f"{name}.{member}" for name, member in named if name not in classes or (member and member not in classes[name])] == []


def test_a_path_that_is_not_there_is_found() -> None:
    """A path is checked whole: from the root, or from the folder whose row names it."""
    assert missing_paths("`proxy/app/app.py` and `proxy/app/store.py`") == ["proxy/app/store.py"]
    assert missing_in_rows("| `proxy/app/` | `app.py`, `store.py` |") == ["proxy/app/store.py"]
