"""Names and places of metering files."""

import hashlib
import os
import re
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from metering_format.places import SEGMENTS
from proxy.base.files import TEMPORARY, remove

RAW_SUFFIX: Final = ".arrows.open"
FACTS_SUFFIX: Final = ".facts.open"
STATE_SUFFIX: Final = ".state"
PENDING_SUFFIX: Final = ".pending"
UNPUBLISHED_SUFFIX: Final = ".unpublished"
"""Of a mark that holds the path of a manifest: its file set is to be sent to the topic."""
LOCK_PREFIX: Final = ".lock-"
SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - files there have names that cannot be guessed, and are made for owner and group


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


def check_readable(directory: Path) -> None:
    """Look into every directory below one: to a search by name, what may not be read is not there.

    Raises:
        OSError: one cannot be read.
    """

    def refuse(error: OSError) -> None:
        raise error

    for _ in os.walk(directory, onerror=refuse):
        pass


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
