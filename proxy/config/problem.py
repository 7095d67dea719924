"""Problems of a configuration, reported together, each in one line."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from proxy.base.printable import printable
from proxy.config.lines import key_lines, nearest_line

PROBLEMS_SHOWN_MAX: Final = 100
COMMAND_LINE: Final = "command line"
CONFIGURATION: Final = "the configuration"
"""The file of a problem of the configuration, where its name is not known; `ConfigSource.located` puts the name there."""


class Problem(NamedTuple):
    """One problem: its place, what is wrong, and the remedy.

    Attributes:
        key: dotted, with the number of a table in a list: `listener[1].address`. Empty: the problem is of the whole file.
        line: line of the file, from 1, if the file has one for the key.
    """

    file: str
    key: str
    message: str
    remedy: str = ""
    line: int | None = None

    def __str__(self) -> str:
        file = self.file if self.line is None else f"{self.file}:{self.line}"
        place = f"{file}: {self.key}" if self.key else file
        text = f"{place}: {self.message}; {self.remedy}" if self.remedy else f"{place}: {self.message}"
        return printable(text, 1_000)


def with_lines(problems: Iterable[Problem], text: bytes, file: str) -> list[Problem]:
    """Return problems with the lines of their keys.

    Args:
        text: the content of `file`. Problems of other files stay.
    """
    lines: dict[str, int] | None = None
    found = []
    for problem in problems:
        if problem.file == file and problem.key and problem.line is None:
            lines = key_lines(text.decode("utf-8", "replace")) if lines is None else lines
            problem = problem._replace(line=nearest_line(lines, problem.key))
        found.append(problem)
    return found


class ConfigProblems(Exception):
    """A configuration or quota file is invalid. `problems` is never empty."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(f"{len(problems)} problems")
        self.problems: tuple[Problem, ...] = tuple(problems)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """Return one line for each problem, the first `PROBLEMS_SHOWN_MAX` of them."""
        shown = [str(problem) for problem in self.problems[:PROBLEMS_SHOWN_MAX]]
        left = len(self.problems) - len(shown)
        return [*shown, f"and {left} more problems"] if left else shown
