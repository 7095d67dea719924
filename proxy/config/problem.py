"""Problems of a configuration, reported together, each in one line."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from proxy.base.printable import printable

PROBLEMS_SHOWN_MAX: Final = 100
COMMAND_LINE: Final = "command line"


class Problem(NamedTuple):
    """One problem: its place, what is wrong, and the remedy."""

    file: str
    key: str
    message: str
    remedy: str = ""

    def __str__(self) -> str:
        place = f"{self.file}: {self.key}" if self.key else self.file
        text = f"{place}: {self.message}; {self.remedy}" if self.remedy else f"{place}: {self.message}"
        return printable(text, 1_000)


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
