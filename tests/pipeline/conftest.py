"""One Spark session for all tests of the pipeline."""

from collections.abc import Iterator
from typing import Any

import pytest

from pipeline.spark.session import session
from tests.support.tools import in_ci, missing_to_run


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A local session on two cores; skipped where no Java is."""
    missing = missing_to_run()
    if missing and not in_ci():
        pytest.skip(f"Spark cannot run here: missing {', '.join(missing)}")
    with session("local[2]") as started:
        yield started
