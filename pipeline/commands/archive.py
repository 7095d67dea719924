"""`sluice meter archive`."""

from pathlib import Path
from typing import Final

import click

from pipeline.commands.execution.exit_codes import clear_errors
from pipeline.commands.execution.outputs import LOCAL_OUTPUT

FOLDER: Final = "sluice"
"""Name of the folder into which executors unpack the archive."""


@click.command()
@click.argument("out", type=LOCAL_OUTPUT, metavar="OUT.tar.gz")
@clear_errors
def archive(out: Path) -> None:
    """Pack what the executors of a Spark cluster need: Sluice, and the packages that it imports there."""
    from pipeline.spark.archive import pack, platform

    packed = pack(out)
    click.echo(f"{out}: {out.stat().st_size / 1e6:.0f} MB, {packed.content_bytes / 1e6:.0f} MB unpacked, for {platform()}")
    click.echo("Sluice with " + ", ".join(f"{name} {version}" for name, version in packed.versions.items()))
    click.echo(f"--conf spark.archives={out}#{FOLDER} --conf spark.executorEnv.PYTHONPATH=./{FOLDER}")
