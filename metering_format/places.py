"""Names of metering files and directories, and of the headers of the messages that carry them over a topic."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

SCHEMA_VERSION: Final = 1
SHARED_SCHEMA_VERSION: Final = 2
"""Schema version of runs whose processes share usage, with `SHARED_COLUMNS` added. Other runs have version 1."""
PACED_SCHEMA_VERSION: Final = 3
"""Schema version of runs with paced groups, with `PACED_COLUMNS` added."""
SCHEMA_VERSIONS: Final = (SCHEMA_VERSION, SHARED_SCHEMA_VERSION, PACED_SCHEMA_VERSION)
SHARED: Final = "shared"
"""Setting of a run: the processes that share usage."""
PACED: Final = "paced_burst_ms"
"""Setting of a run whose groups of `PACED_TYPES` are paced: their burst in ms."""
PACED_TYPES: Final = ("Produce", "Fetch")
FLEET: Final = "fleet"
"""Setting of a run in a fleet: `id` and `name` of the fleet, name and incarnation of this `member`, and the fleet's number among
its workers (`column`, see `fleet_notes`)."""
CONTINUED: Final = "continued_ms"
"""Setting of a run that continues the sensors of another run: the wall-clock time of that, in ms."""
KIND: Final = "sluice-metering"
"""The kind of a manifest, in its keys `schema` and `kind`."""

SEGMENTS: Final = "segments"
MANIFESTS: Final = "manifests"
REMOVED: Final = "removed"
"""Directory of the ledgers of files that retention removed, one for each proxy."""
LEDGER_KIND: Final = "sluice-metering-removed"

PATH_HEADER: Final = "sluice-path"
PART_HEADER: Final = "sluice-part"
"""Header of a message: the file's path below the metering directory, the number of the part, and the number of parts ("0/3")."""


def file_set_name(run_id: str, first_seq: int, part: int = 0) -> str:
    """Return the common name of the files of one rotation; `part` is the number of file sets before it that held no decision."""
    return f"{run_id}-{first_seq:016d}" + (f".{part:04d}" if part else "")


def schema_of(settings: Mapping[str, object]) -> int:
    """Return the schema version of a run's files, from the settings in its manifests."""
    if PACED in settings:
        return PACED_SCHEMA_VERSION
    return SHARED_SCHEMA_VERSION if SHARED in settings else SCHEMA_VERSION


def place_of(table: str, proxy_id: str, first_ts_ms: int, schema: int = SCHEMA_VERSION) -> Path:
    """Return the directory of a table's files of one hour, relative to the metering directory."""
    at = datetime.fromtimestamp(first_ts_ms / 1_000, UTC)
    return Path(table, f"schema={schema}", f"proxy={proxy_id}", f"date={at:%Y-%m-%d}", f"hour={at:%H}")


def is_inside(path: str) -> bool:
    """Whether a path of a manifest is below the metering directory."""
    return not path.startswith("/") and ".." not in path.split("/")


def ledger_name(proxy_id: str) -> str:
    """Return the name of a proxy's ledger in `REMOVED`; "*" for the id gives a pattern for all."""
    return f"proxy={proxy_id}.json"
