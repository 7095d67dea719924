"""The report of a roll-up, from the published tables."""

import operator
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pipeline.report.charts.distribution import draw_waits
from pipeline.report.charts.heat_map import HeatRow, draw_heat
from pipeline.report.charts.pressure_chart import draw_pressure
from pipeline.report.charts.rate_chart import RateSeries, draw_rates
from pipeline.report.page import Figure, Page, Section, draw_page, draw_table
from pipeline.rollup.published.pressure import Pressure, is_applied, pressure_of
from pipeline.rollup.published.summary import GROUP_KEY, charges_by_tenant, clients, groups
from pipeline.rollup.published.tables import read_table
from pipeline.rollup.settings import RollupResult
from pipeline.text import group_name, human_bytes, human_ms, human_rate
from quota.request_time import PERCENT_PER_NANOSECOND

CHARTS_MAX: Final = 6
HEAT_ROWS_MAX: Final = 20
CLIENTS_MAX: Final = 25
PRESSURES_MAX: Final = 24
COLUMNS_MAX: Final = 48
_COLUMN_STEPS_MS: Final = tuple(1_000 * step for step in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 21_600, 86_400))

Rows = Sequence[Mapping[str, Any]]
Key = tuple[Any, ...]


def draw_rollup(directory: Path, result: RollupResult) -> str:
    """Return the report as HTML."""
    used, by_client, shown = groups(directory), clients(directory), read_table(directory, "rate_series")
    begin_ms = min((row["second_ms"] for row in shown), default=0)
    end_ms = max((row["second_ms"] for row in shown), default=0) + 1_000
    several = len({row["proxy_id"] for row in used}) > 1
    series = _by_group(shown, several=several)
    throttle_windows = _by_group((row for row in read_table(directory, "throttle_stretches") if row["end_ms"] > begin_ms), several=several)
    used = [row | {"several": several} for row in used]
    page = Page("Who used what, and who waited", _about(used, begin_ms, end_ms), _figures(used, by_client, result))
    if used:
        page.sections += [
            Section("Utilisation", _HEAT_TEXT, [_heat(series, throttle_windows, begin_ms, end_ms)]),
            Section("Rate against bound", _RATE_TEXT, _rates(series, throttle_windows, begin_ms, end_ms)),
            Section("Goodput against offered load", _PRESSURE_TEXT, [_pressure(series, throttle_windows)]),
            _waits_section(directory, used),
        ]
    charges = charges_by_tenant(directory)
    if charges:
        page.sections.append(Section("Chargeback", _CHARGE_TEXT, [_charge_table(charges)]))
    escapes = read_table(directory, "escapes")
    if escapes:
        page.sections.append(Section("Signs of quota evasion", _ESCAPE_TEXT, [_escape_table(escapes)]))
    which = (
        f"The {CLIENTS_MAX} largest of {len(by_client):,} clients." if len(by_client) > CLIENTS_MAX else "Sorted by usage, largest first."
    )
    page.sections.append(Section("Usage by client", which, [_client_table(by_client)]))
    page.sections.append(Section("Throttling by quota group", "Sorted by total throttle time, longest first.", [_group_table(used)]))
    page.foot = "Made by sluice meter rollup from metering files whose sums equal their manifests. All times are UTC."
    return draw_page(page)


_HEAT_TEXT: Final = (
    "Average rate of each group as a share of its bound. A sensor measures over ten seconds and more, so a full cell need not mean a wait;"
    " the thin bar below a cell shows the share of time in which a client waited (grey: would have waited, where the quota was only"
    " observed)."
)
_RATE_TEXT: Final = (
    "Pale: rate per second. Blue: rate that the sensor measured over its window. Dashed: the bound."
    " Shaded: a client waited; grey: would have waited, where the quota was only observed."
    " Single seconds may exceed the bound by far, as at a Kafka broker, since credit for ten idle seconds"
    " can be used at once."
)


_PRESSURE_TEXT: Final = (
    "Blue: goodput. Pale: offered load, estimated from the waits of clients. Dashed: the bound."
    " The time to drain lasts until no client of the group waits."
)


def _pressure(series: Mapping[Key, Rows], throttle_windows: Mapping[Key, Rows]) -> str:
    drawn: list[tuple[str, str, Pressure]] = []
    for key, rows in list(series.items())[:PRESSURES_MAX]:
        if len(drawn) >= CHARTS_MAX and not any(row["throttled"] for row in rows):
            break  # the following groups were not throttled either
        scale = PERCENT_PER_NANOSECOND if rows[0]["quota_type"] == "Request" else 1.0
        drawn.append((_name(rows[0]), rows[0]["quota_type"], pressure_of(rows, throttle_windows.get(key, ()), scale)))
    return draw_pressure(drawn)


def _by_group(rows: Iterable[Mapping[str, Any]], *, several: bool) -> dict[Key, list[Mapping[str, Any]]]:
    """Return rows by group, longest wait first. With `several` proxies, names include the proxy."""
    found: dict[Key, list[Mapping[str, Any]]] = {}
    key_of = operator.itemgetter(*GROUP_KEY)
    for row in rows:
        found.setdefault(key_of(row), []).append({**row, "several": several})
    for own in found.values():
        own.sort(key=lambda row: row.get("second_ms") or row.get("begin_ms") or 0)
    return dict(sorted(found.items(), key=lambda item: (-sum(row["throttle_ms"] for row in item[1]), str(item[0]))))


def _about(used: Rows, begin_ms: int, end_ms: int) -> str:
    if not used:
        return "No decisions were metered."
    times = [_time(at) for at in (begin_ms, end_ms)]
    proxies = len({row["proxy_id"] for row in used})
    return f"{times[0]} to {times[1]} UTC, {proxies} {'proxy' if proxies == 1 else 'proxies'}, {len(used)} quota groups"


def _figures(used: Rows, by_client: Rows, result: RollupResult) -> list[Figure]:
    coverage = min(result.coverage.values(), default=100.0)
    decisions, waited = sum(row["decisions"] for row in used), sum(row["waited"] for row in used)
    would = sum(row["throttled"] for row in used) - waited
    aside = result.usage_quarantined + result.decisions_quarantined
    return [
        Figure(f"{coverage:.4g} %", "coverage of decisions and usage", "good" if coverage >= 100 else "bad"),
        Figure(human_bytes(sum(row["produce_bytes"] for row in by_client)), "produced"),
        Figure(human_bytes(sum(row["fetch_bytes"] for row in by_client)), "fetched"),
        Figure(f"{decisions:,}", "decisions"),
        Figure(_share(waited, decisions), "of decisions had to wait"),
        *([Figure(_share(would, decisions), "would have waited; quotas were only observed")] if would else []),
        Figure(f"{aside:,}", "rows set aside", "bad" if aside else "plain"),
    ]


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _heat(series: Mapping[Key, Rows], throttle_windows: Mapping[Key, Rows], begin_ms: int, end_ms: int) -> str:
    column_ms = next((step for step in _COLUMN_STEPS_MS if (end_ms - begin_ms) / step <= COLUMNS_MAX), _COLUMN_STEPS_MS[-1])
    first_ms = begin_ms // column_ms * column_ms
    columns = -(-(end_ms - first_ms) // column_ms)
    limited = {key: rows for key, rows in series.items() if any(row["bound"] is not None for row in rows)}
    drawn = [
        _heat_row(rows, throttle_windows.get(key, ()), first_ms, column_ms, columns) for key, rows in list(limited.items())[:HEAT_ROWS_MAX]
    ]
    return draw_heat(drawn, first_ms, column_ms, columns)


def _heat_row(rows: Rows, throttle_windows: Rows, first_ms: int, column_ms: int, columns: int) -> HeatRow:
    units, bound, waited, would = [0.0] * columns, [0.0] * columns, [0] * columns, [0] * columns
    for row in rows:
        at = (row["second_ms"] - first_ms) // column_ms
        units[at] += _rate(row)
        bound[at] = row["bound"] or bound[at]
    for row in throttle_windows:
        for at in range((row["begin_ms"] - first_ms) // column_ms, min((row["end_ms"] - first_ms) // column_ms + 1, columns)):
            begin, end = first_ms + at * column_ms, first_ms + (at + 1) * column_ms
            (waited if is_applied(row) else would)[at] += max(min(row["end_ms"], end) - max(row["begin_ms"], begin), 0)
    percent = [100 * used / (limit * column_ms / 1_000) if limit else None for used, limit in zip(units, bound, strict=True)]
    return HeatRow(_name(rows[0]), percent, waited, would)


def _rates(series: Mapping[Key, Rows], throttle_windows: Mapping[Key, Rows], begin_ms: int, end_ms: int) -> list[str]:
    charts = []
    for key, rows in list(series.items())[:CHARTS_MAX]:
        waited, would = _spans(throttle_windows.get(key, ()))
        unlisted = not (waited or would) and any(row["throttled"] for row in rows)
        text = "waits are not listed" if unlisted else _throttle_windows_text(waited, would)
        charts.append(
            draw_rates(
                RateSeries(
                    _name(rows[0]),
                    rows[0]["quota_type"],
                    f"{rows[0]['quota_type']}, broker {rows[0]['node'] or '-'}: {text}",
                    [row["second_ms"] for row in rows],
                    [_rate(row) for row in rows],
                    [row["observed_max"] or 0.0 for row in rows],
                    [row["bound"] for row in rows],
                    waited,
                    would,
                ),
                begin_ms,
                end_ms,
            )
        )
    return charts


def _spans(throttle_windows: Rows) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return the times in which a client had to wait, and the times in which a throttle was not applied."""
    waited: list[tuple[int, int]] = []
    would: list[tuple[int, int]] = []
    for row in throttle_windows:
        (waited if is_applied(row) else would).append((row["begin_ms"], row["end_ms"]))
    return waited, would


def _throttle_windows_text(waited: Sequence[tuple[int, int]], would: Sequence[tuple[int, int]]) -> str:
    longest, would_longest = (human_ms(max((end - begin for begin, end in of), default=0)) for of in (waited, would))
    text = [f"{len(waited):,} throttle windows, the longest {longest}"] if waited else ["no client waited"]
    return "; ".join([*text, *([f"{len(would):,} would-be throttle windows, the longest {would_longest}"] if would else [])])


def _rate(row: Mapping[str, Any]) -> float:
    return float(row["units"] * PERCENT_PER_NANOSECOND if row["quota_type"] == "Request" else row["units"])


def _name(row: Mapping[str, Any]) -> str:
    tenant = "" if row["tenant"].startswith("(") else f"{row['tenant']}: "
    return tenant + group_name(dict(row)) + (f" @ {row['proxy_id']}" if row.get("several") else "")


def _waits_section(directory: Path, used: Rows) -> Section:
    waited, would = _histograms(directory)
    if not (waited or would) and any(row["throttled"] for row in used):
        return Section("Distribution of waits", "The metering level `sample` counts waits and does not list them.", [])
    description = "All decisions with a wait above 0, over all groups."
    if would:
        description += " Blue: waits. Grey: waits that would have occurred, where quotas were only observed."
    return Section("Distribution of waits", description, [draw_waits(waited, would or None)])


def _histograms(directory: Path) -> tuple[dict[int, int], dict[int, int]]:
    waited: dict[int, int] = {}
    would: dict[int, int] = {}
    for row in read_table(directory, "throttle_histogram"):
        counts = waited if is_applied(row) else would
        counts[row["bucket_ms"]] = counts.get(row["bucket_ms"], 0) + row["n"]
    return waited, would


_CHARGE_TEXT: Final = "Sum over all charged days with the prices of each day, including adjustments for late data."


def _charge_table(charges: Rows) -> str:
    header = ("tenant", "for", "quantity", "unit", "amount", "currency")
    rows = (
        (row["tenant"], row["sku"], f"{row['quantity']:,.6f}", row["unit"], f"{row['amount']:,.6f}", row["currency"]) for row in charges
    )
    return draw_table(header, rows)


_ESCAPE_TEXT: Final = (
    "These are signs, not proof. reconnects: new connections soon after waits. rotates: a throttled client-id stops and another one starts."
)


def _escape_table(escapes: Rows) -> str:
    rows = sorted(escapes, key=lambda row: (-row["n"], row["at_ms"]))[:CLIENTS_MAX]
    header = ("when", "principal", "client-id", "does", "how often")
    return draw_table(header, ((_time(row["at_ms"]), row["principal"], row["client_id"], _does(row), f"{row['n']:,}") for row in rows))


def _does(row: Mapping[str, Any]) -> str:
    return "reconnects" if row["kind"] == "reconnects" else f"goes on as {row['to_client_id']}"


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _client_table(by_client: Rows) -> str:
    header = (
        "tenant",
        "principal",
        "client-id",
        "requests",
        "produced",
        "fetched",
        "broker time",
        "had to wait",
        "would have",
        "connections opened",
    )
    rows = (
        (
            row["tenant"],
            row["principal"],
            row["client_id"],
            f"{row['requests']:,}",
            human_bytes(row["produce_bytes"]),
            human_bytes(row["fetch_bytes"]),
            human_ms(row["handler_ns"] / 1e6),
            f"{row['waited_requests']:,}",
            f"{row['throttled_requests'] - row['waited_requests']:,}",
            f"{row['connections_opened']:,}",
        )
        for row in by_client[:CLIENTS_MAX]
    )
    return draw_table(header, rows)


def _group_table(used: Rows) -> str:
    header = ("group", "type", "broker", "decisions", "bound", "highest use", "had to wait", "would have", "longest wait")
    rows = (
        (
            _name(row),
            row["quota_type"],
            row["node"] or "-",
            f"{row['decisions']:,}",
            human_rate(row["quota_type"], row["bound_mean"]),
            f"{row['utilisation_max_percent']:.0f} %" if row["utilisation_max_percent"] else "-",
            _share(row["waited"], row["decisions"]),
            _share(row["throttled"] - row["waited"], row["decisions"]),
            human_ms(row["throttle_ms_max"] or 0) if row["waited"] else "-",
        )
        for row in used[:CLIENTS_MAX]
    )
    return draw_table(header, rows)
