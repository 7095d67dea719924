"""Metering files as messages of a Kafka topic.

A message is a part of one file. Its key is the proxy id, which keeps a proxy's parts in order. `metering_format.places` describes the
headers. The files of a set come first, and its manifest last. A publisher may publish a part twice: each part has one place, and the
manifest has the SHA-256 of every file.
"""

from pathlib import Path, PurePosixPath
from typing import Final

from metering_format.manifest import Manifest
from metering_format.places import MANIFESTS
from metering_format.tables import TABLES
from pipeline.errors import BadInputError, IncompleteError
from pipeline.manifest import file_sha256, read_manifest

PARTS_MAX: Final = 65_536
PARTS: Final = ".parts"


def checked_place(path: str, part: str) -> tuple[str, int, int]:
    """Return (path, number, count) from the headers of a message.

    Raises:
        BadInputError: the path is not a metering file below the directory, or the part is invalid.
    """
    pieces = PurePosixPath(path).parts
    number, _, count = part.partition("/")
    is_inside = len(pieces) > 1 and pieces[0] in (MANIFESTS, *TABLES) and not any(piece.startswith(".") for piece in pieces)
    if not is_inside or not (number.isdigit() and count.isdigit() and int(number) < int(count) <= PARTS_MAX):
        raise BadInputError(f"a message is part {part!r} of {path!r}, which is not a metering file; name the topic that metering writes to")
    return path, int(number), int(count)


def put_part(landed: Path, path: str, number: int, value: bytes) -> None:
    """Store a part until its manifest arrives; the same part again has no effect."""
    place = landed / PARTS / path / f"{number:06d}"
    place.parent.mkdir(parents=True, exist_ok=True)
    temporary = place.with_name(f".{place.name}.new")
    temporary.write_bytes(value)
    temporary.replace(place)


def assemble(landed: Path, manifest_path: str, count: int) -> Manifest:
    """Assemble the files of a set, the manifest last. Files that exist already are kept.

    Raises:
        IncompleteError: a part is missing, or a file differs from its manifest.
    """
    if (landed / manifest_path).is_file():
        return read_manifest(landed / manifest_path)
    temporary = _joined(landed, manifest_path, count)
    manifest = read_manifest(temporary)
    for entry in manifest.files:
        if (landed / entry.path).is_file():
            continue
        joined = _joined(landed, entry.path, None)
        if file_sha256(joined) != entry.sha256:
            raise IncompleteError(f"{manifest.file_set}: {entry.path} arrived incomplete from the topic; publish the file set again")
        _move(joined, landed / entry.path)
    _move(temporary, landed / manifest_path)
    return manifest


def _joined(landed: Path, path: str, count: int | None) -> Path:
    folder = landed / PARTS / path
    names = sorted(name.name for name in folder.glob("[0-9]*")) if folder.is_dir() else []
    if count is not None:
        names = names[:count]
    joined = landed / PARTS / (path + ".whole")
    joined.parent.mkdir(parents=True, exist_ok=True)
    with joined.open("wb") as file:
        for name in names:
            file.write((folder / name).read_bytes())
    return joined


def _move(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    source.replace(target)
