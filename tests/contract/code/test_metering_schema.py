"""The metering files are a contract: the pipeline reads files of earlier releases by their schema version."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from metering_format.places import PACED_SCHEMA_VERSION, SCHEMA_VERSIONS, SHARED_SCHEMA_VERSION
from metering_format.tables import PACED_COLUMNS, SHARED_COLUMNS, TABLES

ONLY_IN = {SHARED_SCHEMA_VERSION: SHARED_COLUMNS, PACED_SCHEMA_VERSION: PACED_COLUMNS}


def columns(version: int) -> Iterator[str]:
    """Yield each column of a schema version, its type and its nullability."""
    for name, schema in TABLES.items():
        for field in schema:
            if any(version != only and field.name in added.get(name, ()) for only, added in ONLY_IN.items()):
                continue
            yield f"{name}.{field.name} {field.type}" + ("" if field.nullable else " not null")


@pytest.mark.parametrize("version", SCHEMA_VERSIONS)
def test_columns_are_those_of_the_schema_version(version: int) -> None:
    """Every table has exactly the columns, types and nullability that are recorded for its schema version."""
    declared = Path(__file__).with_name(f"metering_schema_{version}.txt")
    assert list(columns(version)) == declared.read_text().splitlines()


@pytest.mark.parametrize(
    "module", ["metering_format.event_kinds", "metering_format.places", "metering_format.manifest", "proxy.session.session"]
)
def test_a_proxy_that_does_not_meter_loads_no_arrow(module: str) -> None:
    """Neither the names, kinds and manifests of metering files nor the session code imports Arrow."""
    code = f"import sys, {module}; print('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
