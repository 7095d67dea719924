"""Exit codes of `sluice meter`, and the one-line form of errors."""

import errno
import functools
import sys
from collections.abc import Callable
from typing import Any, Final

import click

from pipeline.errors import BadInputError, IncompleteError

VIOLATIONS: Final = 1
BAD_INPUT: Final = 2
INCOMPLETE: Final = 3
_REMEDIES: Final = {
    errno.EACCES: "; run this as the owner, or as the user of the proxy",
    errno.ENOSPC: "; make room, and run it again",
}


def clear_errors(function: Callable[..., None]) -> Callable[..., None]:
    """Convert errors of input to one line on stderr and an exit code."""

    @functools.wraps(function)
    def command(*args: Any, **kwargs: Any) -> None:
        try:
            function(*args, **kwargs)
        except BadInputError as error:
            click.echo(f"sluice: {error}", err=True)
            sys.exit(BAD_INPUT)
        except IncompleteError as error:
            click.echo(f"sluice: {error}", err=True)
            sys.exit(INCOMPLETE)
        except BrokenPipeError:
            raise  # the reader of stdout has closed the pipe
        except OSError as error:
            click.echo(f"sluice: {_line_of(error)}", err=True)
            sys.exit(BAD_INPUT)

    return command


def _line_of(error: OSError) -> str:
    """Return the operating system's message and the file."""
    message = " ".join((error.strerror or str(error)).split()) + _REMEDIES.get(error.errno or 0, "")
    return f"{error.filename}: {message}" if error.filename else message
