"""Conversion of a segment's usage to table rows."""

from proxy.metering.conversion.usage_table import COLUMNS, usage_table

RUN = ("run", "proxy")


def test_what_an_earlier_version_left_becomes_rows() -> None:
    """Rows of an earlier version have null in the columns that it lacks."""
    now = [1, None, "b:1", "main", "produce", *range(5, len(COLUMNS))]
    before = now[: COLUMNS.index("waited_requests")]
    for row in (now, before):
        [reported] = usage_table([{"second_ms": 1_000, "rows": [row]}], RUN).to_pylist()
        expected = {**dict.fromkeys(COLUMNS), **dict(zip(COLUMNS, row, strict=False))}
        assert reported == {**expected, "second_ms": 1_000, "run_id": "run", "proxy_id": "proxy"}


def test_a_segment_without_usage_gives_no_rows() -> None:
    """A segment without usage gives an empty table."""
    assert usage_table([], RUN).num_rows == 0
