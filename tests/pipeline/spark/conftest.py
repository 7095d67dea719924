"""The roll-up that tests of the tables begin with, commands in the session of the tests, and a file system that only Hadoop knows."""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pipeline.rollup.prices import read_prices
from pipeline.rollup.settings import RollupSettings
from pipeline.rollup.tenants import read_tenants
from pipeline.spark import session
from sluice_cli.meter import meter
from tests.pipeline.support.first_hour import PRICES, TENANTS, FirstHour, manifests, two_hours

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def rolled_up(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> FirstHour:
    """The roll-up that several tests begin with."""
    from pipeline.spark.rollup.rollup import roll_up

    folder = tmp_path_factory.mktemp("first")
    source = two_hours(folder / "in")
    late = manifests(source)[1]
    late.rename(folder / "later.json")
    (folder / "prices.toml").write_text(PRICES)
    (folder / "tenants.csv").write_text(TENANTS)
    tenants, prices = tuple(read_tenants(folder / "tenants.csv")), read_prices(folder / "prices.toml")
    settings = RollupSettings(str(source), folder / "out", tenants=tenants, prices=prices)
    return FirstHour(folder, late.relative_to(folder), settings, roll_up(spark, settings))


@pytest.fixture
def first_hour(rolled_up: FirstHour, tmp_path: Path) -> FirstHour:
    """A copy of the shared roll-up."""
    return rolled_up.copy(tmp_path)


@pytest.fixture
def typed(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Return a function that runs a command. A command that starts Spark gets the session of the tests."""

    @contextlib.contextmanager
    def shared(*_: object, **__: object) -> Iterator[Any]:
        yield spark

    monkeypatch.setattr(session, "session", shared)
    return lambda *arguments: CliRunner().invoke(meter, [str(argument) for argument in arguments])


@pytest.fixture
def lake(spark: Any, tmp_path: Path) -> str:
    """The URL of the temporary folder, which only Hadoop knows. Hadoop keeps a mount, so each test has its own."""
    name = f"store-{next(_NUMBERS)}"
    spark._jsc.hadoopConfiguration().set(f"fs.viewfs.mounttable.{name}.link./lake", tmp_path.as_uri())
    return f"viewfs://{name}/lake"
