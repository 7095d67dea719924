"""No code of the product exists only for tests: the product uses each definition and constant, or `EXCEPTIONS` has a reason."""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
PRODUCT = ("protocol", "quota", "proxy", "pipeline", "metering_format", "sluice_cli")
OUTSIDE = ("sluice", "examples")
"""Users import `sluice` and start from `examples`, so a use in these counts as a caller."""

EXCEPTIONS = {
    "for callbacks of users: a team's share of the partitions that a broker leads": {"partitions_led_by"},
    "kazoo calls it": {"serialize"},
    "PySpark's daemon calls it": {"print_exc"},
    "faults of the mock cluster, which has no other way to have them": {"DISCONNECT", "push_request_errors", "set_down", "set_up"},
}


class Definition(NamedTuple):
    """A function, method, class, or constant of a module.

    Attributes:
        bases: the base classes as written.
        own_uses: how often its own body contains its name.
    """

    name: str
    place: str
    bases: tuple[str, ...]
    decorators: tuple[str, ...]
    own_uses: int


def names_used(tree: ast.AST) -> Iterator[str]:
    """Yield every name that code uses: variables, attributes, keywords, and strings that are names. An import alone is not a use."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(ctx=ast.Store()):
                pass
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
                yield name
            case ast.Constant(value=str(text)) if text.isidentifier():
                yield text


def definitions(tree: ast.Module, file: str) -> Iterator[Definition]:
    """Yield what a module defines, at every depth."""

    def inside(node: ast.AST, bases: tuple[str, ...]) -> Iterator[Definition]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                own_uses = Counter(names_used(child))[child.name]
                decorators = tuple(ast.unparse(decorator) for decorator in child.decorator_list)
                yield Definition(child.name, f"{file}:{child.lineno}", bases, decorators, own_uses)
                yield from inside(child, tuple(map(ast.unparse, child.bases)) if isinstance(child, ast.ClassDef) else bases)
            else:
                yield from inside(child, bases)

    yield from inside(tree, ())
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield Definition(name, f"{file}:{statement.lineno}", (), (), 0)


def without_caller(found: Iterable[Definition], used: Counter[str]) -> list[Definition]:
    """Return definitions whose name is used nowhere but in their own body."""
    classes = {one.name for one in found}
    return [one for one in found if used[one.name] <= one.own_uses and not _is_called_from_outside(one, classes)]


def _is_called_from_outside(one: Definition, classes: set[str]) -> bool:
    """Whether Python, click, or the library that defines the base class calls it."""
    if one.name.startswith("__") or any(".command(" in decorator for decorator in one.decorators):
        return True
    return any(base.partition("[")[0].rpartition(".")[2] not in classes | {"Generic", "Protocol", "NamedTuple"} for base in one.bases)


def without_exports(tree: ast.Module) -> ast.Module:
    """Return a module without its `__all__`, which lists names and uses none."""
    kept = [one for one in tree.body if not (isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "__all__")]
    return ast.Module(kept, tree.type_ignores)


def trees(packages: Iterable[str]) -> Iterator[tuple[str, ast.Module]]:
    """Yield the path from the root and the syntax tree of each file of these packages."""
    for package in packages:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def test_every_definition_has_a_caller() -> None:
    """The product, `sluice` or an example uses every definition of the product that is not in `EXCEPTIONS`."""
    used = Counter(name for _, tree in trees(OUTSIDE) for name in names_used(tree))
    used.update(name for _, tree in trees(PRODUCT) for name in names_used(without_exports(tree)))
    found = [one for file, tree in trees(PRODUCT) for one in definitions(tree, file)]
    expected = set().union(*EXCEPTIONS.values())
    alone = [one for one in without_caller(found, used) if one.name not in expected]
    assert [f"{one.place} {one.name}" for one in alone] == []


def test_exceptions_are_definitions() -> None:
    """Every name in `EXCEPTIONS` is a definition of the product."""
    defined = {one.name for file, tree in trees(PRODUCT) for one in definitions(tree, file)}
    assert set().union(*EXCEPTIONS.values()) <= defined


def test_a_definition_without_caller_is_found() -> None:
    """`without_caller` returns a definition that only calls itself, and a constant that nobody reads, and no method that is called."""
    source = """
READ = 1
IDLE = READ

class Used:
    def called(self): return 1
    def alone(self): return self.alone()

def main(): return Used().called()

main()
"""
    tree = ast.parse(source)
    assert [one.name for one in without_caller(list(definitions(tree, "sample")), Counter(names_used(tree)))] == ["alone", "IDLE"]
