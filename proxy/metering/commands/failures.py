"""Errors of these commands: one line each, with exit code 2."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final, NoReturn

import click

BAD_INPUT: Final = 2
INCOMPLETE: Final = 3


def check_directory(directory: Path) -> None:
    """End the command if `directory` is no metering directory."""
    from metering_format.places import MANIFESTS, SEGMENTS

    try:
        is_ours = (directory / SEGMENTS).is_dir() or (directory / MANIFESTS).is_dir()
    except PermissionError as error:
        fail(line_of(error))
    if not is_ours:
        fail(f"{directory}: not a metering directory; name a directory that `sluice run --metering` writes")


def line_of(error: OSError) -> str:
    """Return an error of the operating system as one line."""
    if isinstance(error, PermissionError):
        return f"{error.filename}: {error.strerror}; run this as the user that the proxy runs as"
    return f"{error.filename}: {error.strerror}" if error.filename and error.strerror else " ".join(str(error).split())


def fail(line: str) -> NoReturn:
    """Print a line on stderr, and end the command."""
    click.echo(f"sluice: {line}", err=True)
    sys.exit(BAD_INPUT)
