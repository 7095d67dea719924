"""The input of a roll-up: each file set that a manifest names, once, by hour."""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from metering_format.manifest import Manifest
from pipeline.errors import BadInputError
from pipeline.manifest import check_files, found_manifests, without_parts
from pipeline.storage.paths import AnyPath

_HOUR: Final = re.compile(r"date=(\d{4}-\d\d-\d\d)/hour=(\d\d)/")

Hour = tuple[str, str]
"""Date and hour in UTC, in the form of the paths: ("2026-11-21", "07")."""


@dataclass(frozen=True, slots=True)
class Input:
    """One file set: its manifest, the manifest's SHA-256, and its hour."""

    manifest: Manifest
    sha256: str
    hour: Hour

    def paths(self, place: str, table: str) -> list[str]:
        """Return the paths of a table's files; `place` is the metering directory."""
        return [f"{place.rstrip('/')}/{entry.path}" for entry in self.manifest.files if entry.table == table]

    def rows(self, table: str) -> int:
        """Return the number of rows of a table by the manifest."""
        return sum(entry.rows for entry in self.manifest.files if entry.table == table)


def find_inputs(directory: AnyPath) -> list[Input]:
    """Return every file set below `directory` once, each run in order.

    Raises:
        BadInputError: it is not a metering directory, or two different file sets have the same name.
        IncompleteError: there is no manifest, or a file that a manifest lists is missing.
    """
    inputs = each_once((f"{directory}/{one.path}", one.manifest, one.sha256) for one in found_manifests(directory))
    check_files(directory, [item.manifest for item in inputs], hashes=False)
    return inputs


def each_once(found: Iterable[tuple[str, Manifest, str]]) -> list[Input]:
    """Return each file set once, each run in order. The hour comes from the paths of its files, else from the manifest's path.

    Args:
        found: path, manifest and SHA-256 of each manifest.

    Raises:
        BadInputError: no path names an hour, or two different manifests have the same name.
    """
    inputs: dict[tuple[str, str, int, int], Input] = {}
    for path, manifest, sha256 in found:
        place = next(filter(None, map(_HOUR.search, (*(entry.path for entry in manifest.files), path))), None)
        if place is None:
            raise BadInputError(f"{path}: is not in a date=.../hour=... directory; move it back to where it was written")
        key = (manifest.proxy_id, manifest.run_id, manifest.first_seq, manifest.part)
        if inputs.setdefault(key, Input(manifest, sha256, (place[1], place[2]))).manifest != manifest:
            raise BadInputError(f"{path}: another file set of the same name was read before; keep one of the two")
    in_order = [inputs[key] for key in sorted(inputs)]
    kept = {id(manifest) for manifest in without_parts([item.manifest for item in in_order])}
    return [item for item in in_order if id(item.manifest) in kept]


def hashes_by_hour(inputs: Iterable[Input]) -> dict[Hour, list[str]]:
    """Return the SHA-256 values of the manifests of each hour."""
    hours: dict[Hour, list[str]] = {}
    for item in inputs:
        hours.setdefault(item.hour, []).append(item.sha256)
    return {hour: sorted(hashes) for hour, hashes in sorted(hours.items())}


def hash_by_day(inputs: Iterable[Input]) -> dict[str, str]:
    """Return one SHA-256 over all manifests' hashes of each day."""
    hashes: dict[str, list[str]] = {}
    for item in inputs:
        hashes.setdefault(item.hour[0], []).append(item.sha256)
    return {date: hashlib.sha256("".join(sorted(own)).encode()).hexdigest() for date, own in hashes.items()}
