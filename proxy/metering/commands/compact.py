"""`sluice meter compact`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from proxy.metering.commands.failures import INCOMPLETE, check_directory, fail, line_of
from sluice.object_store import ObjectStoreError, is_url

if TYPE_CHECKING:
    from proxy.metering.compaction.compact import CompactResult
    from sluice.object_store import ObjectStore


@click.command("compact")
@click.argument("directory")
@click.option(
    "--decisions-max",
    type=click.IntRange(1),
    default=2_000_000,
    show_default=True,
    help="Maximum number of decisions of a merged file set.",
)
def compact_command(directory: str | ObjectStore, decisions_max: int) -> None:
    """Merge the small file sets of each hour that has ended. Decisions, usage and the chain of manifests stay as they are.

    DIRECTORY is a path, or a URL such as s3://BUCKET/DIR.
    """
    from proxy.metering.upload.store_files import StoreError

    try:
        done = _compact(directory, decisions_max)
    except OSError as error:
        fail(line_of(error))
    except (StoreError, ObjectStoreError) as error:
        fail(" ".join(str(error).split()))
    file_sets = f"{done.before:,} file set{'' if done.before == 1 else 's'}"
    click.echo(f"{file_sets} became {done.after:,}, and {done.bytes_before:,} bytes became {done.bytes_after:,}")
    for problem in done.problems:
        click.echo(f"sluice: {problem}", err=True)
    if done.problems:
        sys.exit(INCOMPLETE)


def _compact(directory: str | ObjectStore, decisions_max: int) -> CompactResult:
    from proxy.base.clock import wall_time_s
    from proxy.metering.compaction.compact import compact

    now_ms = int(wall_time_s() * 1_000)
    if isinstance(directory, str) and not is_url(directory):
        check_directory(Path(directory))
        return compact(Path(directory), now_ms, decisions_max)
    from proxy.metering.upload.compact import compact_at
    from sluice.object_store import open_object_store

    return compact_at(open_object_store(directory) if isinstance(directory, str) else directory, now_ms, decisions_max)
