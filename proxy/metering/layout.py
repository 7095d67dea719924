"""Names and paths of metering files."""

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
"""Suffix of a mark, which has the path of the manifest of a file set to send to the topic."""
LOCK_PREFIX: Final = ".lock-"
SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - files there have names that cannot be guessed, and are made for owner and group


def new_run_id(wall_time_s: float) -> str:
    """Return a name for a run: its start time, and eight random digits."""
    return f"{datetime.fromtimestamp(wall_time_s, UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"


def sanitized(proxy_id: str) -> str:
    """Return a proxy id in a form that is valid in a path."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", proxy_id)[:64] or "sluice"


def pending_path(directory: Path, run_id: str) -> Path:
    """Return the path of a run's buffer for decisions that are not queued yet, in memory that survives the process but not the host.

    It is not on the disk, since writing to a page of a file can block, which would block the event loop.
    """
    return SHARED_MEMORY / f"{pending_prefix(directory)}{run_id}{PENDING_SUFFIX}"


def pending_prefix(directory: Path) -> str:
    """Return the common prefix of the buffers of a metering directory."""
    return f"sluice-{hashlib.sha256(str(directory.resolve()).encode()).hexdigest()[:8]}-"


def check_readable(directory: Path) -> None:
    """Check that every directory below one is readable; a search by name ignores those that are not.

    Raises:
        OSError: a directory cannot be read.
    """

    def refuse(error: OSError) -> None:
        raise error

    for _ in os.walk(directory, onerror=refuse):
        pass


def remove_temporaries(directory: Path, proxy_id: str) -> int:
    """Remove the temporary files of a conversion that failed or died; return their number."""
    found = list(directory.glob(f"*/schema=*/proxy={proxy_id}/**/{TEMPORARY}*"))
    remove(*found)
    return len(found)


def remove_half_written(directory: Path) -> int:
    """Remove the temporary files of dead processes beside their segments; return their number."""
    found = list((directory / SEGMENTS).glob(f"{TEMPORARY}*"))
    remove(*found)
    return len(found)
