"""The output of `rollup`: the same figures as text, JSON and CSV."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from pipeline.rollup.published.adding import added_up
from pipeline.rollup.published.report_files import LEVELS, coarsest
from pipeline.rollup.published.tables import names_below
from pipeline.rollup.settings import RollupResult
from pipeline.text import counted, group_name, human_bytes, human_ms, human_rate, table_lines

SHOWN: Final = 12
_SUMS: Final = (
    "requests",
    "produce_bytes",
    "fetch_bytes",
    "handler_ns",
    "throttled_requests",
    "throttle_ms",
    "waited_requests",
    "waited_ms",
    "connections_opened",
)
_GROUP_SUMS: Final = ("decisions", "units", "throttled", "throttle_ms", "waited", "waited_ms")
_GROUP_MAXIMA: Final = ("utilisation_max_percent", "observed_max", "throttle_ms_max")
GROUP_KEY: Final = ("tenant", "proxy_id", "quota_type", "scope", "node", "listener", "tag_user", "tag_client_id", "tag_ip", "tags")
_BEFORE: Final = {"waited": "throttled", "waited_requests": "throttled_requests", "waited_ms": "throttle_ms"}
"""The substitute for each column that tables of days closed by an earlier version lack."""


def clients(directory: Path) -> list[dict[str, Any]]:
    """Return the sums of all published usage by client, including adjustments, largest first."""
    files = [*_coarsest_files(directory, "usage"), *_files(directory, "usage_adjustment")]
    found = added_up(files, ("tenant", "principal", "client_id"), _SUMS, before=_BEFORE)
    rows = [row | {name: row[name] or 0 for name in _SUMS} for row in found]
    return sorted(rows, key=lambda row: (-row["produce_bytes"] - row["fetch_bytes"], row["principal"], row["client_id"]))


def groups(directory: Path) -> list[dict[str, Any]]:
    """Return the sums of all published decisions by group, longest wait first."""
    files = _coarsest_files(directory, "decisions")
    found = added_up(files, GROUP_KEY, (*_GROUP_SUMS, "bound_seconds", "limited_seconds"), _GROUP_MAXIMA, _BEFORE)
    rows = [_group(row) for row in found]
    return sorted(rows, key=lambda row: (-row["throttle_ms"], -row["utilisation_max_percent"], row["group"], str(row)))


def _group(row: dict[str, Any]) -> dict[str, Any]:
    bound, seconds = row.pop("bound_seconds"), row.pop("limited_seconds")
    numbers = {name: row[name] or 0 for name in (*_GROUP_SUMS, *_GROUP_MAXIMA)}
    return row | numbers | {"group": group_name(row), "bound_mean": bound / seconds if seconds else None}


def charges_by_tenant(directory: Path) -> list[dict[str, Any]]:
    """Return the sums of all charges by tenant and SKU, including adjustments."""
    files = _files(directory, "chargeback_day", "chargeback_adjustment")
    found = added_up(files, ("tenant", "sku", "unit", "currency"), ("units", "quantity", "amount"))
    return sorted(found, key=lambda row: (row["tenant"], row["sku"], row["currency"]))


def _coarsest_files(directory: Path, kind: str) -> list[Path]:
    return [directory / name for name in coarsest(names_below(directory, *(f"{kind}_{level}" for level in LEVELS)), kind)]


def _files(directory: Path, *tables: str) -> list[Path]:
    return [directory / name for table in tables for name in sorted(names_below(directory, table))]


def summary_of(directory: Path, result: RollupResult) -> dict[str, Any]:
    """Return the result of the run and the published figures as plain data for JSON."""
    by_client, by_group = clients(directory), groups(directory)
    return {
        **({} if result.build_id is None else {"build_id": result.build_id}),
        "hours_built": result.hours,
        "days_built": result.days,
        "late_file_sets": result.late,
        "quarantined": {"usage": result.usage_quarantined, "samples": result.decisions_quarantined},
        "coverage_percent": result.coverage,
        "hours": {key: asdict(of) | {"percent": of.percent} for key, of in result.accounts.items()},
        "missing": result.broken,
        "rows": result.tables,
        "would_have_waited": dict(zip(("decisions", "ms"), _would(by_group), strict=True)),
        "totals": {name: sum(row[name] for row in by_client) for name in _SUMS},
        "charges": charges_by_tenant(directory),
        "clients": by_client[:SHOWN],
        "groups": [
            {
                name: row[name]
                for name in (
                    "tenant",
                    "group",
                    "quota_type",
                    "node",
                    "decisions",
                    "units",
                    "throttled",
                    "throttle_ms",
                    "waited",
                    "waited_ms",
                    "bound_mean",
                    "utilisation_max_percent",
                )
            }
            for row in by_group[:SHOWN]
        ],
    }


def _would(rows: list[dict[str, Any]]) -> tuple[int, int]:
    """Return the number of decisions that were throttled without effect, and the sum of their throttle times in ms."""
    return sum(row["throttled"] - row["waited"] for row in rows), sum(row["throttle_ms"] - row["waited_ms"] for row in rows)


def lines_of(directory: Path, result: RollupResult, *, explain: bool = False) -> Iterator[str]:
    """Yield the lines of the summary; `explain` adds the numbers behind the coverage."""
    if not (result.hours or result.late):
        yield "no new file sets: the tables are up to date"
    else:
        late = f", {counted(result.late, 'late file set')} as adjustments" if result.late else ""
        yield f"built       {counted(result.hours, 'hour')}, {counted(result.days, 'day')}{late}"
        if result.build_id is not None:
            yield f"build_id    {result.build_id}"
        aside = result.usage_quarantined + result.decisions_quarantined
        yield f"quarantined {counted(aside, 'row')}" + (" (see table quarantine)" if aside else "")
    if result.coverage:
        day, worst = min(result.coverage.items(), key=lambda item: item[1])
        yield f"coverage    {worst:.4g} %" + (f" at the worst day, {day}" if len(result.coverage) > 1 and worst < 100 else "")
    by_group = groups(directory)
    would, would_ms = _would(by_group)
    if would:
        yield f"observed    {counted(would, 'decision')} would have waited {human_ms(would_ms)}; their quotas were only observed"
    yield ""
    header = (
        "tenant",
        "principal",
        "client-id",
        "requests",
        "produced",
        "fetched",
        "throttled",
        "waits",
        *(("would wait",) if would else ()),
    )
    yield from table_lines(header, (_client_row(row)[: len(header)] for row in clients(directory)[:SHOWN]))
    yield ""
    header = ("group", "type", "node", "decisions", "bound", "peak use", "throttled", "waits", *(("would wait",) if would else ()))
    yield from table_lines(header, (_group_row(row)[: len(header)] for row in by_group[:SHOWN]))
    if explain:
        yield ""
        yield from _explained(result)


def _explained(result: RollupResult) -> Iterator[str]:
    """Yield the coverage by hour: expected and present rows and decisions."""
    if not result.accounts:
        yield "nothing was built; ledger.json lists the manifests of each hour"
        return
    header = ("hour", "usage rows", "of", "decisions", "of", "coverage")
    rows = (
        (key, *(f"{number:,}" for share in (of.usage, of.decisions) for number in (share.present, share.expected)), f"{of.percent:.4g} %")
        for key, of in result.accounts.items()
    )
    yield from table_lines(header, rows)


def _client_row(row: dict[str, Any]) -> tuple[object, ...]:
    sizes = (human_bytes(row["produce_bytes"]), human_bytes(row["fetch_bytes"]))
    return (
        row["tenant"],
        row["principal"],
        row["client_id"],
        f"{row['requests']:,}",
        *sizes,
        f"{row['throttled_requests']:,}",
        human_ms(row["waited_ms"]),
        human_ms(row["throttle_ms"] - row["waited_ms"]),
    )


def _group_row(row: dict[str, Any]) -> tuple[object, ...]:
    used = row["utilisation_max_percent"]
    bound = human_rate(row["quota_type"], row["bound_mean"])
    waited = (f"{row['throttled']:,}", human_ms(row["waited_ms"]), human_ms(row["throttle_ms"] - row["waited_ms"]))
    return (row["group"], row["quota_type"], row["node"] or "-", f"{row['decisions']:,}", bound, f"{used:.0f} %" if used else "-", *waited)
