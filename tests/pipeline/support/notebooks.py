"""Runs the code of a notebook cell by cell, as a kernel does: all cells share their names, and a cell shows its last expression."""

import ast
import json
from pathlib import Path
from typing import Any


def run(path: Path, names: dict[str, Any] | None = None) -> list[Any]:
    """Execute a notebook.

    Args:
        path: the notebook.
        names: names that are there before the first cell; the cells' own are added.

    Returns:
        The value that each code cell shows; None where the last line is a statement.
    """
    names = {} if names is None else names
    cells = json.loads(path.read_text())["cells"]
    return [_run_cell("".join(cell["source"]), f"{path.name}[{at}]", names) for at, cell in enumerate(cells) if cell["cell_type"] == "code"]


def _run_cell(source: str, name: str, names: dict[str, Any]) -> Any:
    body = ast.parse(source, name).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), name, "exec"), names)  # noqa: S102 - a file of the checkout
    return eval(compile(ast.Expression(last.value), name, "eval"), names) if isinstance(last, ast.Expr) else None  # noqa: S307 - the same
