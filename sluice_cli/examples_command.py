"""`sluice examples`: writes the examples to a folder."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import click

from proxy.base.printable import printable

_HERE: Final = Path(__file__).parent
_SUFFIXES: Final = (".toml", ".py", ".ipynb")


@click.command("examples")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), metavar="FOLDER")
def examples(folder: Path) -> None:
    """Write the example configurations with their quota file, classes and a notebook to FOLDER, which is made if necessary.

    A file that exists is an error, and then nothing is written.
    """
    source = _source()
    names = sorted(path.relative_to(source) for path in source.rglob("*") if path.suffix in _SUFFIXES)
    existing = [name for name in names if (folder / name).exists()]
    if existing:
        raise click.ClickException(f"{folder / existing[0]} exists, so nothing is written; name another folder, or remove the file")
    try:
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / name, folder / name)
    except OSError as error:
        where = error.filename2 or error.filename
        raise click.ClickException(f"{where}: {error.strerror}; name a folder that this user may write") from error
    for name in names:
        click.echo(printable(str(folder / name), 1_000))


def _source() -> Path:
    """Return the examples of the wheel, or those of a checkout."""
    packed = _HERE / "examples"
    return packed if packed.is_dir() else _HERE.parent / "examples"
