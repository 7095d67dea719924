"""Retention of metering files: removes the oldest file sets as a whole, and records them in a ledger.

The manifest is removed first, and then the files: a file set without a manifest does not exist for readers, so none reads a part of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from metering_format.manifest import pretty
from metering_format.places import KIND, LEDGER_KIND, MANIFESTS, REMOVED, SEGMENTS, ledger_name
from proxy.base.files import TEMPORARY, make_directory, put_bytes, remove
from proxy.metering.locks import changing
from proxy.metering.upload.state import enter_lost, read_object, read_state, sha256_of

DISK_FAILURE: Final = 1
"""Exit code of the converting child process after a failed write to the disk."""
PENDING_REMOVALS: Final = "going"
"""Key of the ledger: the file sets that were entered last, with manifest and files of each."""
RUNS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Retention:
    """Limits of age and size; None: no limit.

    Attributes:
        uploads_to: name of the object store to which file sets are uploaded; None: to none. A file set that waits for its upload is
            removed only above `local_bytes_max`.
        local_bytes_max: limit of the size of all file sets, uploaded or not.
    """

    bytes_max: int | None = None
    age_ms_max: int | None = None
    now_ms: int = 0
    check_interval_s: float = 300.0
    proxy_id: str = ""
    uploads_to: str | None = None
    local_bytes_max: int | None = None

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit."""
        return any(limit is not None for limit in (self.bytes_max, self.age_ms_max, self.local_bytes_max))

    def as_fact(self) -> dict[str, Any]:
        """Return the settings in the form that the converting child process reads."""
        return {name: getattr(self, name) for name in _IN_ORDER}


_IN_ORDER: Final = ("proxy_id", "bytes_max", "age_ms_max", "uploads_to", "local_bytes_max")
KEEP_ALL: Final = Retention()


class Removed(NamedTuple):
    """Number of file sets that were removed, and of those among them that were not uploaded before."""

    file_sets: int = 0
    lost: int = 0


@dataclass(frozen=True, slots=True)
class _Set:
    manifest: Path
    fields: dict[str, Any]
    text: bytes
    size: int


def retention_of(order: Mapping[str, Any], now_ms: int) -> Retention:
    """Return the settings that an order to the child process has."""
    return Retention(now_ms=now_ms, **{name: order[name] for name in _IN_ORDER})


def apply_retention(directory: Path, proxy_id: str, retention: Retention) -> Removed:
    """Remove the oldest file sets of one proxy that exceed a limit; return how many."""
    if not retention.is_limited:
        return Removed()
    with changing(directory):
        _finish(directory, proxy_id)
        return _remove_oldest(directory, proxy_id, retention)


def _remove_oldest(directory: Path, proxy_id: str, retention: Retention) -> Removed:
    sets = sorted(_sets(directory, proxy_id), key=lambda one: (one.fields["last_ts_ms"], one.fields["first_seq"]))
    kept_bytes = sum(one.size for one in sets)
    uploaded = None if retention.uploads_to is None else read_state(directory, proxy_id, retention.uploads_to).manifests
    gone: list[_Set] = []
    lost: list[_Set] = []
    for one in sets:
        too_old = retention.age_ms_max is not None and one.fields["last_ts_ms"] < retention.now_ms - retention.age_ms_max
        too_much = retention.bytes_max is not None and kept_bytes > retention.bytes_max
        is_full = retention.local_bytes_max is not None and kept_bytes > retention.local_bytes_max
        waits = uploaded is not None and uploaded.get(str(one.manifest.relative_to(directory))) != sha256_of(one.text)
        if not is_full and (waits or not (too_old or too_much)):
            break
        kept_bytes -= one.size
        gone.append(one)
        lost += [one] if waits else []
    if lost:
        enter_lost(directory, proxy_id, list(_by_run(lost, {}, retention.now_ms).values()))
    if gone:
        _enter(directory, proxy_id, gone, retention.now_ms)
    for one in gone:
        _take_away(directory, one.manifest, [directory / entry["path"] for entry in one.fields["files"]])
    return Removed(len(gone), len(lost))


def _sets(directory: Path, proxy_id: str) -> Iterator[_Set]:
    for path in (directory / MANIFESTS).glob(f"schema=*/proxy={proxy_id}/**/*.json"):
        one = None if path.name.startswith(TEMPORARY) else _set(path)
        if one is not None:
            yield one


def _set(path: Path) -> _Set | None:
    """Return the file set of a manifest; None: the manifest is invalid, which `sluice meter verify-manifests` reports."""
    with contextlib.suppress(OSError, msgspec.DecodeError, KeyError, TypeError):
        text = path.read_bytes()
        fields = msgspec.json.decode(text)
        if fields["kind"] == KIND:
            return _Set(path, fields, text, len(text) + sum(entry["bytes"] for entry in fields["files"]))
    return None


def _enter(directory: Path, proxy_id: str, gone: list[_Set], now_ms: int) -> None:
    """Enter file sets in the ledger before their removal, so that no check reports them as missing."""
    path = _ledger_path(directory, proxy_id)
    runs: dict[str, dict[str, Any]] = {}
    with contextlib.suppress(KeyError, TypeError):
        runs = {run["run_id"]: run for run in read_object(path)["runs"]}
    _by_run(gone, runs, now_ms)
    make_directory(path.parent)
    ledger = {"schema": 1, "kind": LEDGER_KIND, "proxy_id": proxy_id, "runs": list(runs.values())[-RUNS_MAX:]}
    ledger[PENDING_REMOVALS] = [
        [str(one.manifest.relative_to(directory)), *(entry["path"] for entry in one.fields["files"])] for one in gone
    ]
    put_bytes(path, pretty(ledger))


def _by_run(gone: list[_Set], runs: dict[str, dict[str, Any]], now_ms: int) -> dict[str, dict[str, Any]]:
    """Add file sets to the entries of their runs in a ledger; return the entries."""
    for one in gone:
        fields = one.fields
        run = runs.setdefault(fields["run_id"], {"run_id": fields["run_id"], "file_sets": 0, "bytes": 0, "last_seq": -1})
        run["file_sets"] += 1
        run["bytes"] += one.size
        run["last_seq"] = max(run["last_seq"], fields["last_seq"])
        run["last_ts_ms"] = fields["last_ts_ms"]
        run["removed_ms"] = now_ms
    return runs


def _ledger_path(directory: Path, proxy_id: str) -> Path:
    return directory / REMOVED / ledger_name(proxy_id)


def _finish(directory: Path, proxy_id: str) -> None:
    """Complete a removal that was interrupted."""
    with contextlib.suppress(TypeError, ValueError):
        for manifest, *files in read_object(_ledger_path(directory, proxy_id)).get(PENDING_REMOVALS, ()):
            one = _set(directory / manifest)  # files have other names if a user was forgotten since
            files += [] if one is None else [entry["path"] for entry in one.fields["files"]]
            _take_away(directory, directory / manifest, [directory / path for path in files])


def _take_away(directory: Path, manifest: Path, files: list[Path]) -> None:
    remove(manifest, *files)
    for path in (manifest, *files):
        _remove_empty(path.parent, directory)


def _remove_empty(place: Path, directory: Path) -> None:
    """Remove empty directories, up to that of the table."""
    while place not in (directory, directory / SEGMENTS) and place.parent != directory:
        try:
            place.rmdir()
        except OSError:
            return
        place = place.parent
