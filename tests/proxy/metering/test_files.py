"""How a file of samples is laid out for who reads it next."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from proxy.metering.files import ROWS_WITH_AN_END, write_parquet

LIVE_MS = 12_000


@pytest.mark.parametrize(("rows", "row_groups"), [(ROWS_WITH_AN_END, 2), (ROWS_WITH_AN_END - 1, 1)])
def test_samples_that_may_go_on_stand_in_a_row_group_of_their_own(tmp_path: Path, rows: int, row_groups: int) -> None:
    """Those of the last seconds, in the order they had; a small file is not worth it."""
    last_ms = np.random.default_rng(3).integers(0, 300_000, rows)
    path = tmp_path / "samples.parquet"
    write_parquet(pa.table({"last_event_ms": last_ms, "first_seq": np.arange(rows)}), path, live_ms=LIVE_MS)
    with pq.ParquetFile(path) as file:
        assert file.num_row_groups == row_groups
        end = file.read_row_group(row_groups - 1)
        whole = file.read()
    assert sorted(whole.column("first_seq").to_pylist()) == list(range(rows))
    if row_groups == 2:
        assert end.column("first_seq").to_pylist() == np.flatnonzero(last_ms > last_ms.max() - LIVE_MS).tolist()
