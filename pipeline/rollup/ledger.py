"""The ledger of a directory of tables: the manifests that each hour was built from, and the last closed day."""

import os
from pathlib import Path
from typing import Final

import msgspec

from pipeline.errors import BadInputError
from pipeline.files import check_directory
from pipeline.rollup.exclusive import LOCK
from pipeline.rollup.inputs import Hour

KIND: Final = "sluice-rollup"
SCHEMA_VERSION: Final = 1
NAME: Final = "ledger.json"


class Ledger(msgspec.Struct):
    """The ledger. It is written after the tables, so an interrupted run is repeated.

    Attributes:
        built_with: "DATE HOUR" -> hash of the settings (tenants, prices, levels); a different hash causes a rebuild of open hours.
        settings: the hash for hours that are not in `built_with`, which earlier versions did not write.
        hours: "DATE HOUR" -> SHA-256 values of the manifests that the hour was built from.
        closed_through: the last closed day, or None.
        late: closed days only: "DATE HOUR" -> SHA-256 values of the manifests in adjustments.
        coverage: percentage by day, including late file sets.
        accounts: by day, the numbers behind its coverage: usage rows expected and present, decisions expected and present.
        lost: "DATE HOUR" -> number of lost decisions directly before its file sets, when above 0.
        pending: the batch of adjustments that is being published. The batch of an interrupted run is removed.
    """

    kind: str = KIND
    schema: int = SCHEMA_VERSION
    settings: str = ""
    hours: dict[str, list[str]] = {}
    closed_through: str | None = None
    late: dict[str, list[str]] = {}
    coverage: dict[str, float] = {}
    built_with: dict[str, str] = {}
    accounts: dict[str, list[int]] = {}
    lost: dict[str, int] = {}
    pending: str | None = None

    @property
    def known(self) -> set[str]:
        """Return the SHA-256 of every manifest that is in some table, in whatever hour."""
        return {sha256 for hashes in (*self.hours.values(), *self.late.values()) for sha256 in hashes}

    def settings_of(self, hour: Hour) -> str:
        """Return the hash of the settings that an hour was last built with."""
        return self.built_with.get(hour_key(hour), self.settings)


def read_ledger(directory: Path) -> Ledger:
    """Return the ledger of `directory`, or an empty ledger when there is none.

    Raises:
        BadInputError: the directory has other content or tables of another version, or is not writable.
    """
    check_directory(directory)
    path = directory / NAME
    if not path.exists():
        if directory.exists() and any(path.name != LOCK for path in directory.iterdir()):
            raise BadInputError(
                f"{directory}: is not empty and contains no {NAME}; name a new directory, or an output directory of `rollup`"
            )
        return Ledger()
    try:
        ledger = msgspec.json.decode(path.read_bytes(), type=Ledger)
    except (msgspec.MsgspecError, OSError) as error:
        raise BadInputError(f"{path}: not a ledger of `sluice meter rollup` ({error}); name another directory") from error
    if ledger.kind != KIND or ledger.schema != SCHEMA_VERSION:
        raise BadInputError(
            f"{path}: {ledger.kind} of schema {ledger.schema}, this version writes {SCHEMA_VERSION}; name another directory"
        )
    return ledger


def write_ledger(directory: Path, ledger: Ledger) -> None:
    """Replace the ledger atomically."""
    temporary = directory / f".{NAME}.new"
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(ledger), indent=1) + b"\n")
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    temporary.replace(directory / NAME)


def hour_key(hour: Hour) -> str:
    """Return the key of an hour in the ledger: "DATE HOUR"."""
    return " ".join(hour)
