"""`sluice meter forget`: commands that change metering files belong to their writer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final, NoReturn

import click

from proxy.base.errors import StartError

BAD_INPUT: Final = 2
DIRECTORY: Final = click.Path(path_type=Path)


@click.command("forget")
@click.argument("directory", type=DIRECTORY)
@click.option("--user", required=True, metavar="U", help="Name of the principal, without its type.")
@click.option("--key-file", type=DIRECTORY, metavar="FILE", help="File with the key, where names are written keyed.")
def forget_command(directory: Path, user: str, key_file: Path | None) -> None:
    """Remove a user's name from dimension tables and switches of finished file sets. Recorded facts are kept without the name."""
    from proxy.metering.facts.names import Names, read_key
    from proxy.metering.forget import ForgetError, forget_user
    from proxy.metering.segment import left_over

    _check(directory)
    try:
        keyed = None if key_file is None else Names("keyed", read_key(key_file))
        done = forget_user(directory, user, keyed)
    except PermissionError as error:
        _fail(_refused(error))
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else " ".join(str(error).split()))
    except (StartError, ForgetError) as error:
        _fail(" ".join(str(error).split()))
    rows = f"{done.rows} row{'' if done.rows == 1 else 's'}"
    file_sets = f"{done.file_sets} file set{'' if done.file_sets == 1 else 's'}"
    click.echo(f"the user's name was removed from {rows} in {file_sets}")
    if left_over(directory):
        click.echo("sluice: a proxy still writes, or was killed; run this command again when its file sets are finished", err=True)


def _check(directory: Path) -> None:
    from metering_format.places import MANIFESTS, SEGMENTS

    try:
        is_ours = (directory / SEGMENTS).is_dir() or (directory / MANIFESTS).is_dir()
    except PermissionError as error:
        _fail(_refused(error))
    if not is_ours:
        _fail(f"{directory}: not a metering directory; name a directory that `sluice run --metering` writes")


def _refused(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}; run this as the user that the proxy runs as"


def _fail(line: str) -> NoReturn:
    click.echo(f"sluice: {line}", err=True)
    sys.exit(BAD_INPUT)
