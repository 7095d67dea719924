"""The import graph of the code: imports at the top of files, inside functions, and under TYPE_CHECKING."""

import ast
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FILES_MAX = 15
Graph = Mapping[str, set[str]]


def _modules(package: str) -> dict[str, Path]:
    """Return the files of a package by dotted name; the `__init__` of a folder has the name of the folder."""
    found = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def _imported(path: Path, modules: Mapping[str, Path]) -> Iterable[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                yield submodule if submodule in modules else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def imports(package: str) -> dict[str, set[str]]:
    """Return the imports between the files of a package."""
    modules = _modules(package)
    return {name: {one for one in _imported(path, modules) if one in modules} - {name} for name, path in modules.items()}


def folders(package: str) -> dict[str, set[str]]:
    """Return the imports between the folders of a package; a folder and its sub-folders count as one."""
    modules = _modules(package)
    known: dict[str, set[str]] = {}
    for name, others in imports(package).items():
        own = modules[name].parent
        for other in others:
            theirs = modules[other].parent
            if not (own.is_relative_to(theirs) or theirs.is_relative_to(own)):
                known.setdefault(str(own.relative_to(ROOT)), set()).add(str(theirs.relative_to(ROOT)))
    return known


def circle(graph: Graph) -> list[str]:
    """Return an import cycle as a list that ends with its first element; [] when there is none."""
    done: set[str] = set()

    def walk(node: str, way: list[str]) -> list[str]:
        if node in way:
            return [*way[way.index(node) :], node]
        if node in done:
            return []
        for other in sorted(graph.get(node, ())):
            found = walk(other, [*way, node])
            if found:
                return found
        done.add(node)
        return []

    return next((found for node in sorted(graph) if (found := walk(node, []))), [])


@pytest.mark.parametrize("package", ["protocol", "quota", "proxy", "pipeline", "metering_format", "sluice_cli"])
def test_no_files_know_each_other_in_a_circle(package: str) -> None:
    """The files of a package do not import each other in a cycle."""
    assert circle(imports(package)) == []


@pytest.mark.parametrize("package", ["protocol", "quota", "proxy", "pipeline", "metering_format", "sluice_cli"])
def test_no_folders_know_each_other_in_a_circle(package: str) -> None:
    """The folders of a package do not import each other in a cycle."""
    assert circle(folders(package)) == []


def test_a_circle_is_found() -> None:
    """`circle` returns every step of a cycle, and no file that only leads to one."""
    assert circle({"start": {"a"}, "a": {"b"}, "b": {"c"}, "c": {"a"}}) == ["a", "b", "c", "a"]
    assert circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def crowded(files: Iterable[str]) -> dict[str, int]:
    """Return the folders below the root that hold more than `FILES_MAX` of these files directly, with the number of files."""
    counts = Counter(str(Path(file).parent) for file in files)
    return {folder: count for folder, count in counts.items() if count > FILES_MAX and folder != "."}


def test_no_folder_is_crowded() -> None:
    """No folder below the root of the checkout holds more than 15 files directly."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert crowded(listed) == {}


def test_a_crowded_folder_is_found() -> None:
    """`crowded` returns a folder with too many files, and does not count the files of its sub-folders."""
    assert crowded([f"a/{number}.py" for number in range(16)] + ["a/b/c.py", "root.md"]) == {"a": 16}
