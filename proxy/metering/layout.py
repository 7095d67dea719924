"""Names and places of metering files."""

import contextlib
import hashlib
import os
import re
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from proxy.metering.schema import SCHEMA_VERSION

SEGMENTS: Final = "segments"
MANIFESTS: Final = "manifests"
RAW_SUFFIX: Final = ".arrows.open"
FACTS_SUFFIX: Final = ".facts.open"
STATE_SUFFIX: Final = ".state"
PENDING_SUFFIX: Final = ".pending"
UNPUBLISHED_SUFFIX: Final = ".unpublished"
"""Of a mark that holds the path of a manifest: its file set is to be sent to the topic."""
LOCK_PREFIX: Final = ".lock-"
TEMPORARY: Final = ".tmp-"
FILE_MODE: Final = 0o640
DIRECTORY_MODE: Final = 0o750
SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - files there have names that nobody can guess, and are made for owner and group


def new_run_id(wall_time_s: float) -> str:
    """Return a name for this run: when it began, and eight random digits."""
    return f"{datetime.fromtimestamp(wall_time_s, UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"


def sanitized(proxy_id: str) -> str:
    """Return a proxy id that can stand in a path."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", proxy_id)[:64] or "sluice"


def pending_path(directory: Path, run_id: str) -> Path:
    """Return where a run keeps the decisions that it has not handed over yet: in memory that outlives the process, not the machine.

    Not on the disk: a page of a file can hold up who writes to it, and that would be the event loop.
    """
    return SHARED_MEMORY / f"{pending_prefix(directory)}{run_id}{PENDING_SUFFIX}"


def pending_prefix(directory: Path) -> str:
    """Return how the names of those of a metering directory begin."""
    return f"sluice-{hashlib.sha256(str(directory.resolve()).encode()).hexdigest()[:8]}-"


def stem_name(run_id: str, first_seq: int, part: int = 0) -> str:
    """Return the name that the files of one rotation share; `part` counts those before it that held no decision."""
    return f"{run_id}-{first_seq:016d}" + (f".{part:04d}" if part else "")


def check_readable(directory: Path) -> None:
    """Look into every directory below one: to a search by name, what may not be read is not there.

    Raises:
        OSError: one cannot be read.
    """

    def refuse(error: OSError) -> None:
        raise error

    for _ in os.walk(directory, onerror=refuse):
        pass


def place_of(table: str, proxy_id: str, first_ts_ms: int) -> Path:
    """Return the directory of a table's files of one hour, relative to the metering directory."""
    at = datetime.fromtimestamp(first_ts_ms / 1_000, UTC)
    return Path(table, f"schema={SCHEMA_VERSION}", f"proxy={proxy_id}", f"date={at:%Y-%m-%d}", f"hour={at:%H}")


def make_directory(path: Path) -> None:
    """Make a directory and those of its parents that are missing, all for owner and group only."""
    for place in (*reversed(path.parents), path):  # `parents=True` would make the parents for everybody
        place.mkdir(mode=DIRECTORY_MODE, exist_ok=True)


def sync_directory(path: Path) -> None:
    """Make a rename in `path` last through a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def put(path: Path, temporary: Path) -> None:
    """Give a finished temporary file its name: visible whole or not at all."""
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    temporary.chmod(FILE_MODE)
    temporary.rename(path)
    sync_directory(path.parent)


def put_bytes(path: Path, data: bytes) -> None:
    """Write a small file: visible whole or not at all."""
    temporary = path.with_name(TEMPORARY + path.name)
    temporary.write_bytes(data)
    put(path, temporary)


def remove_temporaries(directory: Path, proxy_id: str) -> int:
    """Remove what a conversion that failed or died had not given its name yet; return how many files."""
    found = list(directory.glob(f"*/schema=*/proxy={proxy_id}/**/{TEMPORARY}*"))
    remove(*found)
    return len(found)


def remove_half_written(directory: Path) -> int:
    """Remove what a process that died had begun to write beside its segments; return how many files."""
    found = list((directory / SEGMENTS).glob(f"{TEMPORARY}*"))
    remove(*found)
    return len(found)


def remove(*paths: Path) -> None:
    """Remove files that may not be there."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
