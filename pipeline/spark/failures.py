"""What ends a Spark job as an error of ours: one line, and the exit code that belongs to it."""

import contextlib
import re
from collections.abc import Iterator
from typing import Final

from pipeline.errors import BadInputError, IncompleteError, PipelineError

_OURS: Final = re.compile(r"^pipeline\.errors\.(BadInputError|IncompleteError): (.+)$", re.MULTILINE)
_CLASSES: Final = {"BadInputError": BadInputError, "IncompleteError": IncompleteError}
_NAMED: Final = re.compile(r"^(?:: )?[\w.$]*(?:Error|Exception|Interrupt): .*$", re.MULTILINE)
_IN_PYTHON: Final = "Traceback (most recent call last)"


@contextlib.contextmanager
def told_in_one_line() -> Iterator[None]:
    """Raise what failed in a block's Spark jobs as an error of ours: of what a task raised, Spark hands on only the text.

    Raises:
        BadInputError, IncompleteError: as in the task; the latter, too, where Spark itself gave up.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise error_of(str(error)) from error


def error_of(text: str) -> PipelineError:
    """Return the error that the text of a failed job stands for."""
    found = _OURS.search(text)
    if found is not None:
        return _CLASSES[found[1]](found[2])
    return IncompleteError(f"Spark could not finish the work: {gist_of(text)}")


def gist_of(text: str) -> str:
    """Return the line of an exception's text that says what failed."""
    said: list[str] = _NAMED.findall(text) or [line for line in text.splitlines() if line.strip()] or ["no word"]
    last = said[-1 if _IN_PYTHON in text else 0]  # Python names what failed at the end, Java at the beginning
    return last.removeprefix(": ").strip()
