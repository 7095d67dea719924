"""`sluice meter forget`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from proxy.base.errors import StartError
from proxy.metering.commands.failures import check_directory, fail, line_of
from sluice.local_path import LOCAL_PATH
from sluice.object_store import ObjectStoreError, is_url

if TYPE_CHECKING:
    from proxy.metering.facts.names import Names
    from proxy.metering.forget import ForgetResult
    from sluice.object_store import ObjectStore


@click.command("forget")
@click.argument("directory")
@click.option("--user", required=True, metavar="U", help="Name of the principal, without its type.")
@click.option("--key-file", type=LOCAL_PATH, metavar="FILE", help="File with the key, where names are written keyed.")
def forget_command(directory: str | ObjectStore, user: str, key_file: Path | None) -> None:
    """Remove a user's name from dimension tables and switches of finished file sets. Recorded facts are kept without the name.

    DIRECTORY is a path, or a URL such as s3://BUCKET/DIR.
    """
    from proxy.metering.facts.names import Names, read_key
    from proxy.metering.forget import ForgetError
    from proxy.metering.segment import left_over
    from proxy.metering.upload.store_files import StoreError

    here = None if not isinstance(directory, str) or is_url(directory) else Path(directory)
    if here is not None:
        check_directory(here)
    try:
        keyed = None if key_file is None else Names("keyed", read_key(key_file))
        done = _forget(directory, user, keyed)
    except OSError as error:
        fail(line_of(error))
    except (StartError, ForgetError, StoreError, ObjectStoreError) as error:
        fail(" ".join(str(error).split()))
    rows = f"{done.rows} row{'' if done.rows == 1 else 's'}"
    file_sets = f"{done.file_sets} file set{'' if done.file_sets == 1 else 's'}"
    click.echo(f"the user's name was removed from {rows} in {file_sets}")
    if here is not None and left_over(here):
        click.echo("sluice: a proxy still writes, or was killed; run this command again when its file sets are finished", err=True)


def _forget(directory: str | ObjectStore, user: str, keyed: Names | None) -> ForgetResult:
    from proxy.metering.forget import forget_user

    if isinstance(directory, str) and not is_url(directory):
        return forget_user(Path(directory), user, keyed)
    from proxy.metering.upload.forget import forget_user_at
    from sluice.object_store import open_object_store

    return forget_user_at(open_object_store(directory) if isinstance(directory, str) else directory, user, keyed)
