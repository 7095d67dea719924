"""The metering files are a contract: files of earlier releases are read by their schema version."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from metering_format.places import SCHEMA_VERSION
from metering_format.tables import TABLES

DECLARED = Path(__file__).with_name(f"metering_schema_{SCHEMA_VERSION}.txt")


def columns() -> Iterator[str]:
    """Yield each column with its type, and whether it can be null, as `DECLARED` has them."""
    for name, schema in TABLES.items():
        for field in schema:
            yield f"{name}.{field.name} {field.type}" + ("" if field.nullable else " not null")


def test_columns_are_those_of_the_schema_version() -> None:
    """Every table has the columns, types and nullability that are on record for its version; another type is another version."""
    assert list(columns()) == DECLARED.read_text().splitlines()


@pytest.mark.parametrize(
    "module", ["metering_format.event_kinds", "metering_format.places", "metering_format.manifest", "proxy.session.session"]
)
def test_a_proxy_that_does_not_meter_loads_no_arrow(module: str) -> None:
    """Kinds, names and manifests of metering files take no Arrow, nor does what decides for a connection."""
    code = f"import sys, {module}; print('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
