"""What an object store has: the file sets that were uploaded, and those that retention removed before."""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from metering_format.manifest import pretty
from metering_format.places import LEDGER_KIND, ledger_name
from proxy.base.files import make_directory, put_bytes

UPLOADED: Final = "uploaded"
"""Directory of the state of each proxy, below the metering directory."""
KIND: Final = "sluice-metering-uploaded"
_LOST_PREFIX: Final = "lost-"


@dataclass(slots=True)
class UploadState:
    """What was uploaded to one URL.

    Attributes:
        url: the URL without credentials; for another one all file sets are uploaded again.
        manifests: SHA-256 of the manifest that was uploaded last, by the manifest's path below the metering directory.
        lost: SHA-256 of the ledger of lost file sets that was uploaded last.
    """

    url: str
    manifests: dict[str, str] = field(default_factory=dict)
    lost: str | None = None


def state_path(directory: Path, proxy_id: str) -> Path:
    """Return the path of a proxy's state."""
    return directory / UPLOADED / f"proxy={proxy_id}.json"


def read_state(directory: Path, proxy_id: str, url: str) -> UploadState:
    """Return the state of a proxy; empty if nothing was uploaded to this URL, or if the file is damaged."""
    fields = read_object(state_path(directory, proxy_id))
    with contextlib.suppress(KeyError, msgspec.ValidationError):
        if fields["kind"] == KIND and fields["url"] == url:
            return UploadState(url, msgspec.convert(fields["manifests"], dict[str, str]), fields.get("lost"))
    return UploadState(url)


def write_state(directory: Path, proxy_id: str, state: UploadState) -> None:
    """Write the state of a proxy atomically."""
    path = state_path(directory, proxy_id)
    make_directory(path.parent)
    put_bytes(path, pretty({"schema": 1, "kind": KIND, "url": state.url, "manifests": state.manifests, "lost": state.lost}))


def lost_path(directory: Path, proxy_id: str) -> Path:
    """Return the path of the ledger of file sets that retention removed before they were uploaded."""
    return directory / UPLOADED / (_LOST_PREFIX + ledger_name(proxy_id))


def enter_lost(directory: Path, proxy_id: str, runs: list[dict[str, Any]]) -> None:
    """Add runs to the ledger of lost file sets. It has the form of the ledger of removed ones, and is uploaded in its place."""
    path = lost_path(directory, proxy_id)
    known = {run["run_id"]: run for run in read_object(path).get("runs", ())}
    for run in runs:
        before = known.get(run["run_id"])
        sums = {name: run[name] + (before[name] if before else 0) for name in ("file_sets", "bytes")}
        known[run["run_id"]] = {**run, **sums}
    make_directory(path.parent)
    put_bytes(path, pretty({"schema": 1, "kind": LEDGER_KIND, "proxy_id": proxy_id, "runs": list(known.values())}))


def sha256_of(data: bytes) -> str:
    """Return a SHA-256 as hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; an empty one if there is none that can be read."""
    with contextlib.suppress(OSError, msgspec.DecodeError):
        fields = msgspec.json.decode(path.read_bytes())
        if isinstance(fields, dict):
            return fields
    return {}
