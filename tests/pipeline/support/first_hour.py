"""A metering directory of two hours with its roll-up, which tests of the tables begin with."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipeline.rollup.settings import RollupResult, RollupSettings
from tests.support.metering.metering_scene import START_MS, Client, write_scene

CAST = [
    Client("orders", "checkout", "produce", 40_000.0, 9_000, 45, 2),
    Client("lake", "loader", "fetch", 150_000.0, 50_000, 90, 2),
    Client("audit", "audit-log", "produce", 1e9, 2_000, 200),
]
TENANTS = "user,client_id,tenant\norders,*,shop\n*,loader,data\n"
PRICES = """
currency = "EUR"
[[price]]
produced_gib = "900.5"
million_requests = "12"
[[price]]
from = 2026-11-21
tenant = "shop"
produced_gib = "450.25"
"""


def two_hours(directory: Path, **options: Any) -> Path:
    """Write two file sets: the last 20 s of one hour, the first 20 s of the next."""
    return write_scene(directory, 40, clients=CAST, start_ms=START_MS + 3_580_000, **options)


def manifests(directory: Path) -> list[Path]:
    return sorted((directory / "manifests").rglob("*.json"))


@dataclass(frozen=True)
class FirstHour:
    """The first of two hours, rolled up with tenants and prices; `late` is the manifest of the second one, removed for now."""

    folder: Path
    late: Path
    settings: RollupSettings
    result: RollupResult

    @property
    def source(self) -> Path:
        return Path(self.settings.source)

    @property
    def out(self) -> Path:
        return self.settings.out

    def let_come(self) -> None:
        """Put the manifest of the second hour back."""
        (self.folder / "later.json").rename(self.folder / self.late)

    def copy(self, folder: Path) -> "FirstHour":
        """Copy everything to another folder, so that each test changes its own copy."""
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        return replace(self, folder=folder, settings=replace(self.settings, source=str(folder / "in"), out=folder / "out"))
