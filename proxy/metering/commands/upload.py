"""`sluice meter upload`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from proxy.metering.commands.failures import INCOMPLETE, check_directory, fail, line_of
from sluice.local_path import LOCAL_PATH
from sluice.object_store import ObjectStoreError


@click.command("upload")
@click.argument("directory", type=LOCAL_PATH)
@click.option("--to", "url", required=True, metavar="URL", help="Directory of an object store, such as s3://BUCKET/metering.")
def upload_command(directory: Path, url: str) -> None:
    """Copy finished file sets that an object store does not have as they are now. A proxy with metering.upload does this itself."""
    from metering_format.places import MANIFESTS
    from proxy.metering.upload.file_sets import Upload
    from proxy.metering.upload.store_files import StoreError, StoreFiles
    from sluice.object_store import open_object_store

    check_directory(directory)
    sizes: list[int] = []
    problems: list[str] = []
    try:
        store = StoreFiles(open_object_store(url))
        for proxy_id in sorted({path.name.removeprefix("proxy=") for path in (directory / MANIFESTS).glob("schema=*/proxy=*")}):
            problems += Upload(directory, proxy_id, store, sizes.append).run()
    except OSError as error:
        fail(line_of(error))
    except (ObjectStoreError, StoreError) as error:
        fail(str(error))
    click.echo(f"{len(sizes):,} file set{'' if len(sizes) == 1 else 's'} uploaded, {sum(sizes):,} bytes")
    for problem in problems:
        click.echo(f"sluice: {problem}", err=True)
    if problems:
        sys.exit(INCOMPLETE)
