"""The exit codes of all commands of `sluice meter`: 0 done, 1 a violation, 2 bad input, 3 incomplete."""

import shutil
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from sluice_cli.meter import with_writers
from tests.pipeline.support.first_hour import two_hours
from tests.pipeline.validation.test_validation import batches, missed, sensors
from tests.support.metering.metering_directory import write_directory

QUOTAS = '[[quota]]\nclient-id = "checkout"\nproducer_byte_rate = 10_000\n'
READERS = ("validate --in {}", "rollup --in {} --out OUT", "whatif --in {} --quotas QUOTAS", "recommend --in {}", "neighbours --in {}")
STREAM = "stream --from {} --checkpoint OUT/checkpoint --out OUT/stream --once"
WRITERS = ("repair {}", "compact {}", "forget {} --user nobody")
CASES = {
    **{line.format("GOOD"): 0 for line in (*READERS, *WRITERS, "verify-manifests {}", "inspect {}/FILE")},
    "ddl --for duckdb --at ROLLED": 0,
    "validate --in WRONG": 1,
    **{line.format("ABSENT"): 2 for line in (*READERS, *WRITERS, STREAM, "verify-manifests {}", "inspect {}", "ddl --for dbt --at {}")},
    "register ABSENT --table metering.samples": 2,
    "upload ABSENT --to s3://bucket/metering": 2,
    "upload GOOD --to hdfs://host/metering": 2,
    "archive OUT/archive.rar": 2,
    "whatif --in GOOD --quotas ABSENT": 2,
    "validate --in GOOD --no-such-option": 2,
    "stream --from GOOD --command-config QUOTAS --checkpoint OUT/checkpoint --out OUT/stream": 2,
    **{line.format("EMPTY"): 3 for line in (*READERS, STREAM, "verify-manifests {}")},
    **{line.format("TORN"): 3 for line in (*READERS, "verify-manifests {}")},
    "rollup --in WRONG --out OUT": 3,
}
"""Command lines, with names of files for places. Not here: what starts Spark, reaches a store or packs 200 MB; `test_stream`,
`test_metering_upload` and `test_archive` have these."""


@pytest.fixture(scope="module")
def meter() -> click.Group:
    return with_writers()


@pytest.fixture(scope="module")
def places(meter: click.Group, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Directories that are good, that diverge, that have no file set, that lost a file, and that are not there."""
    folder = tmp_path_factory.mktemp("exit")
    good = two_hours(folder / "good")
    torn = Path(shutil.copytree(good, folder / "torn"))
    for table in ("samples", "usage"):
        min((torn / table).rglob("*.parquet")).unlink()
    (folder / "empty" / "manifests").mkdir(parents=True)
    (folder / "quotas.toml").write_text(QUOTAS)
    assert CliRunner().invoke(meter, ["rollup", "--in", str(good), "--out", str(folder / "rolled")]).exit_code == 0
    return {
        "GOOD/FILE": str(min((good / "usage").rglob("*.parquet"))),
        "GOOD": str(good),
        "WRONG": str(write_directory(folder / "wrong", batches(file_sets=2), sensors(), mutate=missed)),
        "EMPTY": str(folder / "empty"),
        "TORN": str(torn),
        "ABSENT": str(folder / "absent"),
        "QUOTAS": str(folder / "quotas.toml"),
        "ROLLED": str(folder / "rolled"),
    }


@pytest.mark.parametrize(("line", "code"), CASES.items(), ids=CASES)
def test_a_command_ends_with_its_code(line: str, code: int, meter: click.Group, places: dict[str, str], tmp_path: Path) -> None:
    """The exit code is that of the table. An error of input, or of incomplete data, is one line, without a traceback."""
    for name, place in {**places, "OUT": str(tmp_path / "out")}.items():
        line = line.replace(name, place)
    done = CliRunner().invoke(meter, line.split())
    assert done.exit_code == code, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit)
    errors = [one for one in done.stderr.splitlines() if one.startswith("sluice: ") and not one.endswith(" ...")]  # the rest is progress
    assert len(errors) == (1 if code >= 2 and "--no-such" not in line and done.stdout == "" else 0)


def test_every_command_is_in_the_table(meter: click.Group) -> None:
    """No command is missing, and each has a case of bad input."""
    assert {line.split()[0] for line, code in CASES.items() if code == 2} == set(meter.commands)
