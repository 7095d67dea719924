"""What a roll-up reads: the file sets that manifests name, each once, by the hour that it belongs to."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipeline.errors import BadInputError, IncompleteError
from pipeline.manifest import MANIFESTS, Manifest, file_sha256, find_manifests, problems_of, read_manifest

_HOUR: Final = re.compile(r"date=(\d{4}-\d\d-\d\d)/hour=(\d\d)/")

Hour = tuple[str, str]
"""Date and hour, both as in paths, UTC: ("2026-11-21", "07")."""


@dataclass(frozen=True, slots=True)
class Input:
    """One file set: its manifest, the SHA-256 of that, and the hour that it belongs to."""

    manifest: Manifest
    sha256: str
    hour: Hour

    def paths(self, directory: Path, table: str) -> list[str]:
        """Return where the files of a table are."""
        return [str(directory / entry.path) for entry in self.manifest.files if entry.table == table]

    def rows(self, table: str) -> int:
        """Return how many rows of a table the manifest promises."""
        return sum(entry.rows for entry in self.manifest.files if entry.table == table)


def find_inputs(directory: Path) -> list[Input]:
    """Return every file set below `directory` once, each run in order.

    Raises:
        BadInputError: no metering directory, or two different file sets bear the same name.
        IncompleteError: no manifest at all, or a file that one promises is not there.
    """
    find_manifests(directory)  # all that can be wrong with the directory as a whole
    found: dict[tuple[str, str, int], Input] = {}
    for path in sorted((directory / MANIFESTS).rglob("*.json")):
        place = _HOUR.search(path.as_posix())
        if place is None:
            raise BadInputError(f"{path}: is in no date=.../hour=... directory; put it back where it was written")
        manifest = read_manifest(path)
        known = found.setdefault(
            (manifest.proxy_id, manifest.run_id, manifest.first_seq), Input(manifest, file_sha256(path), (place[1], place[2]))
        )
        if known.manifest != manifest:
            raise BadInputError(f"{path}: another file set of the same name was read before; keep one of the two")
    inputs = sorted(found.values(), key=lambda item: (item.manifest.proxy_id, item.manifest.run_id, item.manifest.first_seq))
    _check_files(directory, inputs)
    return inputs


def _check_files(directory: Path, inputs: Iterable[Input]) -> None:
    problems = [problem for item in inputs for problem in problems_of(directory, item.manifest, hashes=False)]
    if problems:
        more = f" (and {len(problems) - 1} more; `sluice meter verify-manifests` names all)" if len(problems) > 1 else ""
        raise IncompleteError(problems[0] + more)


def hashes_by_hour(inputs: Iterable[Input]) -> dict[Hour, list[str]]:
    """Return which manifests each hour is made of."""
    hours: dict[Hour, list[str]] = {}
    for item in inputs:
        hours.setdefault(item.hour, []).append(item.sha256)
    return {hour: sorted(hashes) for hour, hashes in sorted(hours.items())}
