"""Reads and checks manifests, which list the files of a metering file set. Completeness comes from manifests, not from listings."""

import hashlib
from collections.abc import Container, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from metering_format.manifest import RUN_KEYS, FileEntry, Manifest, TypeCount, UsageTotal
from metering_format.places import KIND, MANIFESTS, SCHEMA_VERSIONS, is_inside
from metering_format.tables import TABLES
from pipeline.errors import BadInputError, IncompleteError
from pipeline.files import check_readable
from pipeline.storage.paths import AnyPath, below, expect_files
from pipeline.text import counted

MANIFEST_BYTES_MAX: Final = 16 * 2**20
HASHING_THREADS: Final = 4
_CHUNK: Final = 2**20
_NO_COUNTS: Final[dict[str, TypeCount]] = {}
_NO_USAGE: Final = UsageTotal()


RunKey = tuple[str, str]
"""Proxy id and run id."""


@dataclass(frozen=True, slots=True)
class FoundManifest:
    """A manifest: its path below the metering directory, the SHA-256 of its text, and the length of that in bytes."""

    path: str
    manifest: Manifest
    sha256: str
    bytes: int


def manifest_paths(directory: AnyPath) -> list[AnyPath]:
    """Return the paths of all manifests below a metering directory, without temporary files of unfinished writes."""
    found = (directory / MANIFESTS).rglob("*.json")
    return sorted((path for path in found if not path.name.startswith(".")), key=str)


def read_manifest(path: AnyPath) -> Manifest:
    """Read one manifest.

    Raises:
        BadInputError: the file is not a manifest of Sluice, or has another schema version.
    """
    return manifest_of(_text_of(path), path)


def _text_of(path: AnyPath) -> bytes:
    if path.stat().st_size > MANIFEST_BYTES_MAX:
        raise BadInputError(f"{path}: a manifest of more than {MANIFEST_BYTES_MAX} bytes, which was written by another program")
    return path.read_bytes()


def manifest_of(data: bytes, path: AnyPath | str) -> Manifest:
    """Parse the text of a manifest; `path` is used in messages.

    Raises:
        BadInputError: the text is not a manifest of Sluice, or has another schema version.
    """
    try:
        fields = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadInputError(f"{path}: not a manifest ({error}); restore it") from error
    if not isinstance(fields, dict) or fields.get("kind") != KIND:
        raise BadInputError(f"{path}: not a manifest of Sluice's metering; name a directory that `sluice run --metering` writes")
    if fields.get("schema") not in SCHEMA_VERSIONS:
        known = " and ".join(map(str, SCHEMA_VERSIONS))
        raise BadInputError(
            f"{path}: schema {fields.get('schema')!r}, this version reads {known}; use the Sluice that wrote it or a newer one"
        )
    try:
        manifest = msgspec.convert(fields, Manifest)
    except msgspec.ValidationError as error:
        raise BadInputError(f"{path}: not a manifest of schema {fields['schema']}: {error}") from error
    _check_entries(path, manifest)
    return manifest


def _check_entries(path: AnyPath | str, manifest: Manifest) -> None:
    for entry in manifest.files:
        if entry.table not in TABLES or not is_inside(entry.path):
            raise BadInputError(
                f"{path}: names {entry.table} at {entry.path}, which is no table of schema {manifest.schema} in this directory"
            )


def found_manifests(directory: AnyPath) -> list[FoundManifest]:
    """Return all manifests below `directory` by their path. Each is read once.

    Raises:
        BadInputError: it is no directory, or a manifest or directory cannot be read.
        IncompleteError: there is no manifest.
    """
    if not directory.is_dir():
        raise BadInputError(f"{directory}: no such directory; name a directory that `sluice run --metering` writes")
    if isinstance(directory, Path):
        check_readable(directory / MANIFESTS)
    paths = manifest_paths(directory)
    if not paths:
        raise IncompleteError(
            f"{directory}: contains no manifest, so no file set is finished; stop or rotate the proxy, or run `sluice meter repair`"
        )
    expect_files(paths)
    return [read_found(directory, path) for path in paths]


def read_found(directory: AnyPath, path: AnyPath) -> FoundManifest:
    """Read one manifest of a metering directory.

    Raises:
        BadInputError: it is no manifest of Sluice, or has another schema version.
    """
    text = _text_of(path)
    return FoundManifest(below(directory, path), manifest_of(text, path), hashlib.sha256(text).hexdigest(), len(text))


def find_manifests(directory: AnyPath) -> list[Manifest]:
    """Return all manifests below `directory`, each run in decision order.

    Raises:
        BadInputError: as for `found_manifests`, or two different manifests have the same name.
        IncompleteError: there is no manifest.
    """
    return in_order(found.manifest for found in found_manifests(directory))


def in_order(manifests: Iterable[Manifest]) -> list[Manifest]:
    """Return manifests with each run in decision order, and each manifest once. Parts of a merged file set are left out.

    Raises:
        BadInputError: two different manifests have the same name.
    """
    found: dict[tuple[str, str, int, int], Manifest] = {}
    for manifest in manifests:
        key = (manifest.proxy_id, manifest.run_id, manifest.first_seq, manifest.part)
        if found.setdefault(key, manifest) != manifest:
            raise same_name(manifest)
    return without_parts([found[key] for key in sorted(found)])


def same_name(manifest: Manifest) -> BadInputError:
    """Return the error for a manifest that differs from another one of the same name."""
    return BadInputError(
        f"{manifest.file_set}: {manifest.proxy_id} has another file set of the same name with a different manifest; keep one of the two"
    )


def without_parts(manifests: Sequence[Manifest]) -> list[Manifest]:
    """Return manifests without those of file sets that another one contains, which an interrupted `sluice meter compact` leaves."""
    parts = {(one.proxy_id, one.run_id, name) for one in manifests for name in one.parts}
    return [one for one in manifests if (one.proxy_id, one.run_id, one.file_set) not in parts] if parts else list(manifests)


def by_run(manifests: Iterable[Manifest]) -> dict[RunKey, list[Manifest]]:
    """Return manifests by (proxy_id, run_id), each run in decision order."""
    runs: dict[RunKey, list[Manifest]] = {}
    for manifest in manifests:
        runs.setdefault((manifest.proxy_id, manifest.run_id), []).append(manifest)
    for its in runs.values():
        its.sort(key=lambda manifest: (manifest.first_seq, manifest.part))
    return runs


def with_files(manifest: Manifest, files: Iterable[FileEntry]) -> Manifest:
    """Return a manifest with other files, such as some of its own."""
    return msgspec.structs.replace(manifest, files=tuple(files))


def with_tables(manifest: Manifest, tables: Container[str]) -> Manifest:
    """Return a manifest with the files of some tables only."""
    return with_files(manifest, (entry for entry in manifest.files if entry.table in tables))


def brief(manifest: Manifest, like: Manifest | None = None) -> Manifest:
    """Return a manifest without its files and totals. What describes the run it shares with another one of the run."""
    shared = {} if like is None else {name: getattr(like, name) for name in RUN_KEYS if getattr(like, name) == getattr(manifest, name)}
    return msgspec.structs.replace(manifest, files=(), counts=_NO_COUNTS, usage=_NO_USAGE, **shared)


class Listed(NamedTuple):
    """What a manifest says about a file: the name of its file set, and the numbers of rows and bytes."""

    file_set: str
    rows: int
    bytes: int

    def problem(self, path: object, size: int | None) -> str | None:
        """Return how a file of `size` bytes differs; None: it does not. The size None is that of a missing file."""
        if size is None:
            return f"{path}: is missing; manifest {self.file_set} promises {counted(self.rows, 'row')}"
        if size != self.bytes:
            return f"{path}: {size} bytes, manifest {self.file_set} has {self.bytes}"
        return None

    def changed(self, path: object) -> str:
        """Return the line for a file of that length whose SHA-256 is another one."""
        return f"{path}: its SHA-256 is not the one in manifest {self.file_set}"


def listed_in(manifests: Iterable[Manifest]) -> dict[str, Listed]:
    """Return the files of some manifests by their paths."""
    return {entry.path: Listed(one.file_set, entry.rows, entry.bytes) for one in manifests for entry in one.files}


def file_sha256(path: AnyPath) -> str:
    """Return the SHA-256 of a file as hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def problems_in(directory: AnyPath, manifests: Sequence[Manifest], *, hashes: bool = True) -> list[str]:
    """Return every difference between files and their manifests, one line each; hashes are computed in a few threads."""
    if not hashes:
        return [problem for manifest in manifests for problem in problems_of(directory, manifest, hashes=False)]
    with ThreadPoolExecutor(HASHING_THREADS) as threads:
        found = threads.map(lambda manifest: problems_of(directory, manifest), manifests)
        return [problem for problems in found for problem in problems]


def check_files(directory: AnyPath, manifests: Sequence[Manifest], *, hashes: bool) -> None:
    """Check that the files of all manifests are present; with `hashes`, also compare their SHA-256.

    Raises:
        IncompleteError: a file is missing or has changed.
    """
    problems = problems_in(directory, manifests, hashes=hashes)
    if problems:
        more = f" (and {len(problems) - 1} more; `sluice meter verify-manifests` names all)" if len(problems) > 1 else ""
        raise IncompleteError(problems[0] + more)


def check_undamaged(directory: AnyPath, manifests: Sequence[Manifest]) -> None:
    """Compare the SHA-256 of files that contain divergences, so that damage is not reported as an error of the proxy.

    Raises:
        IncompleteError: a file differs from its manifest.
    """
    problems = problems_in(directory, manifests)
    if problems:
        raise damaged(problems[0], len(problems))


def damaged(problem: str, number: int = 1) -> IncompleteError:
    """Return the error that is reported in place of divergences.

    Args:
        problem: description of the first file that differs from its manifest.
        number: number of files that differ.
    """
    more = f"; {counted(number - 1, 'more file')} too (`sluice meter verify-manifests` names all)" if number > 1 else ""
    return IncompleteError(f"{problem}: the file is damaged, so its divergences are not evidence about the proxy; restore it{more}")


def problems_of(directory: AnyPath, manifest: Manifest, *, hashes: bool = True) -> list[str]:
    """Return every difference between a manifest and its files, one line each; an empty list when there is none."""
    problems: list[str] = []
    for entry in manifest.files:
        path = directory / entry.path
        listed = Listed(manifest.file_set, entry.rows, entry.bytes)
        problem = listed.problem(path, path.stat().st_size if path.is_file() else None)
        if problem is not None:
            problems.append(problem)
        elif hashes and file_sha256(path) != entry.sha256:
            problems.append(listed.changed(path))
    return problems


def check_held(directory: AnyPath, manifest: Manifest, held: Mapping[str, bytes]) -> None:
    """Compare files that were read from another file system with the SHA-256 values of a manifest.

    Args:
        directory: used in messages.
        held: content of the files by path. A missing file is reported when it is read.

    Raises:
        IncompleteError: a file has changed.
    """
    for entry in manifest.files:
        if entry.path in held and hashlib.sha256(held[entry.path]).hexdigest() != entry.sha256:
            raise IncompleteError(Listed(manifest.file_set, entry.rows, entry.bytes).changed(directory / entry.path))
