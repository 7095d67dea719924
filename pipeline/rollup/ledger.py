"""The ledger of a directory of tables: the manifests of each hour, and the last closed day."""

import os
from pathlib import Path
from typing import Final

import msgspec

from pipeline.errors import BadInputError
from pipeline.files import check_directory
from pipeline.rollup.inputs import Hour

KIND: Final = "sluice-rollup"
SCHEMA_VERSION: Final = 1
NAME: Final = "ledger.json"


class Ledger(msgspec.Struct):
    """Stands beside the tables; written last, so that a run that ended in between is done again.

    Attributes:
        built_with: "DATE HOUR" -> hash of what shaped it besides the input (tenants, prices, levels); another one builds open hours again.
        settings: the same of hours that are not in `built_with`, which earlier versions did not write.
        hours: "DATE HOUR" -> SHA-256 of the manifests it was made from.
        closed_through: the last closed day, or None.
        late: of closed days only: "DATE HOUR" -> manifests that are in adjustments.
        coverage: percent of each day, with what came late.
        accounts: what that of a day is made of: usage rows expected and present, decisions expected and present.
        lost: "DATE HOUR" -> decisions just before its file sets that were in none, where there were any.
        pending: the batch of adjustments that is being put in place; a run that ended meanwhile did not count.
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
        """Every manifest that is in some table, whatever hour it was found in."""
        return {sha256 for hashes in (*self.hours.values(), *self.late.values()) for sha256 in hashes}

    def settings_of(self, hour: Hour) -> str:
        """Return the hash of the settings that an hour was last built with."""
        return self.built_with.get(hour_key(hour), self.settings)


def read_ledger(directory: Path) -> Ledger:
    """Return the ledger of `directory`, an empty one where there is none yet.

    Raises:
        BadInputError: the directory holds something else, or tables of another version, or cannot be written.
    """
    check_directory(directory)
    path = directory / NAME
    if not path.exists():
        if directory.exists() and any(directory.iterdir()):
            raise BadInputError(f"{directory}: is not empty and holds no {NAME}; name a new directory, or one that `rollup --out` made")
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
    """Replace the ledger in one step."""
    temporary = directory / f".{NAME}.new"
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(ledger), indent=1) + b"\n")
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    temporary.replace(directory / NAME)


def hour_key(hour: Hour) -> str:
    """Return an hour as the ledger writes it."""
    return " ".join(hour)
