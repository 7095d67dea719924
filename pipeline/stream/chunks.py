"""Metering files as messages of a Kafka topic.

A message is a part of one file. Its key is the proxy id, which keeps a proxy's parts in order. `metering_format.places` describes the
headers. The files of a set come first, and its manifest last. A publisher may publish a part twice: each part has one place, and the
manifest has the SHA-256 of every file.
"""

import contextlib
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from metering_format.manifest import FileEntry, Manifest
from metering_format.places import MANIFESTS
from metering_format.tables import TABLES
from pipeline.errors import BadInputError, IncompleteError
from pipeline.files import write_bytes
from pipeline.manifest import file_sha256, manifest_of
from pipeline.storage.paths import AnyPath, StorePath, listed_below, read_if_there

PARTS_MAX: Final = 65_536
PARTS: Final = ".parts"
"""Folder of the parts, below the metering directory."""
_ANY: Final = "[0-9]" * 6


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


class Parts:
    """Parts of files that have arrived, until the manifest arrives.

    Args:
        here: a directory of this machine, or one that all workers mount: new parts go there, and files are put together there.
        earlier: a directory of an object store, with its listing, for the parts that a batch leaves; None: they stay where they are.
    """

    def __init__(self, here: Path, earlier: AnyPath | None = None) -> None:
        self._here, self._earlier = here, earlier

    def put(self, path: str, number: int, value: bytes) -> None:
        """Store a part; the same part again has no effect."""
        place = self._here / path / _name(number)
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary = place.with_name(f".{place.name}.new")
        temporary.write_bytes(value)
        temporary.replace(place)

    def joined(self, path: str, count: int | None) -> Path:
        """Return a temporary file with the parts of a file; `count` is their number where a message has named it."""
        found = {part.name: part for place in (self._earlier, self._here) if place is not None for part in _parts_in(place / path)}
        joined = self._whole(path)
        joined.parent.mkdir(parents=True, exist_ok=True)
        with joined.open("wb") as file:
            for name in sorted(found)[:count]:
                file.write(found[name].read_bytes())
        return joined

    def remove(self, path: str) -> None:
        """Remove the parts of a file, and what `joined` has made of them."""
        shutil.rmtree(self._here / path, ignore_errors=True)
        self._whole(path).unlink(missing_ok=True)
        for part in _parts_in(self._earlier / path) if self._earlier is not None else ():
            part.unlink()
        with contextlib.suppress(OSError):  # a directory with other parts stays
            for directory in (self._here / path).relative_to(self._here).parents:
                (self._here / directory).rmdir()

    def _whole(self, path: str) -> Path:
        return self._here / (path + ".whole")

    def keep(self) -> None:
        """Copy what this batch leaves to the object store, where a later batch finds it."""
        for part in sorted(self._here.rglob(_ANY)):
            if self._earlier is not None and part.is_file():
                write_bytes(self._earlier / part.relative_to(self._here), part.read_bytes())


def assemble(landed: AnyPath, manifest_path: str, counts: Mapping[str, int], parts: Parts) -> None:
    """Assemble the files of a set, the manifest last, and remove their parts. Nothing changes if the manifest is there.

    Args:
        landed: the metering directory.
        manifest_path: the manifest, whose parts have all arrived.
        counts: the number of parts of each file, as far as messages have named it.
        parts: what has arrived.

    Raises:
        IncompleteError: a part is missing, or a file differs from its manifest.
        BadInputError: the manifest is not one, or an object store refuses.
    """
    text = read_if_there(landed / manifest_path)
    if text is None:
        text = parts.joined(manifest_path, counts[manifest_path]).read_bytes()
        manifest = manifest_of(text, landed / manifest_path)
        for entry in manifest.files:
            _put_file(landed / entry.path, parts.joined(entry.path, counts.get(entry.path)), entry, manifest)
        write_bytes(landed / manifest_path, text)
    for path in (manifest_path, *(entry.path for entry in manifest_of(text, landed / manifest_path).files)):
        parts.remove(path)


def assemble_all(landed: AnyPath, counts: Mapping[str, int], parts: Parts) -> list[str]:
    """Assemble the file sets whose manifests are in a batch; return the paths of these.

    Args:
        landed: the metering directory.
        counts: the number of parts of each file in the batch.
        parts: what has arrived.

    Raises:
        IncompleteError, BadInputError: as for `assemble`.
    """
    arrived = sorted(path for path in counts if path.startswith(f"{MANIFESTS}/"))
    for path in arrived:
        assemble(landed, path, counts, parts)
    return arrived


def land_in_store(landed: StorePath, messages: Iterable[tuple[str, int, int, bytes]]) -> list[str]:
    """Assemble file sets in an object store; parts whose manifest is in a later batch wait there.

    Args:
        landed: the metering directory.
        messages: path, number and count of parts, and value of each message of a batch. A batch that was cut short is repeated with the
            same messages.

    Returns:
        The paths of the manifests.

    Raises:
        IncompleteError, BadInputError: as for `assemble`.
    """
    with tempfile.TemporaryDirectory(prefix="sluice-parts-") as folder:
        parts, counts = Parts(Path(folder), listed_below(landed, PARTS)), dict[str, int]()
        for path, number, count, value in messages:
            counts[path] = count
            parts.put(path, number, value)
        arrived = assemble_all(landed, counts, parts)
        parts.keep()
        return arrived


def _put_file(place: AnyPath, joined: Path, entry: FileEntry, manifest: Manifest) -> None:
    if isinstance(place, Path) and place.is_file():
        return
    if file_sha256(joined) != entry.sha256:
        raise IncompleteError(f"{manifest.file_set}: {entry.path} arrived incomplete from the topic; publish the file set again")
    if isinstance(place, Path):
        place.parent.mkdir(parents=True, exist_ok=True)
        joined.replace(place)
    else:
        place.write_bytes(joined.read_bytes())


def _name(number: int) -> str:
    return f"{number:06d}"


def _parts_in(place: AnyPath) -> list[AnyPath]:
    return list(place.glob(_ANY))
