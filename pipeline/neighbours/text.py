"""Formats neighbours for a terminal."""

from collections.abc import Iterator

from pipeline.neighbours.load import Load
from pipeline.neighbours.pairs import Pair, client_name
from pipeline.text import counted, table_lines, utc_time

SHOWN = 20


def lines_of(pairs: list[Pair], load: Load, share_percent: float, *, explain: bool = False) -> Iterator[str]:
    """Yield the shares of clients, and the pairs; `explain` adds the figures behind each pair."""
    share = f"a neighbour makes at least {share_percent:g} % of a broker's load"
    yield f"load        {load.measured} in windows of {load.window_ms / 1_000:g} s; {share}"
    for place, (proxy_id, node) in enumerate(load.places):
        largest = shares_of(load, place)[:3]
        yield f"broker {node:<4} {proxy_id}: " + ", ".join(f"{name} {share:.0f} %" for name, share in largest)
    yield ""
    if not pairs:
        yield "no client was slower or throttled more while a neighbour made most of the load"
        return
    header = ("neighbour", "victim", "broker", "share", "windows with the neighbour", "other windows", "effect on the victim")
    rows = ((pair.neighbour, pair.victim, pair.node, f"{pair.share_percent:.0f} %", pair.windows, pair.others, pair.says) for pair in pairs)
    yield from table_lines(header, list(rows)[:SHOWN])
    if len(pairs) > SHOWN:
        yield f"... and {len(pairs) - SHOWN} more (--format json or csv shows all)"
    for pair in pairs[:SHOWN] if explain else ():
        yield from _explained(pair)


def _explained(pair: Pair) -> Iterator[str]:
    """Yield the figures behind one pair."""
    yield ""
    yield f"{pair.victim}, with {pair.neighbour} on broker {pair.node} from {utc_time(pair.first_ms)} on:"
    for label, windows, requests, ms, throttled in (
        ("with the neighbour", pair.windows, pair.requests, pair.ms_per_request, pair.throttled_percent),
        ("otherwise", pair.others, pair.requests_otherwise, pair.ms_per_request_otherwise, pair.throttled_percent_otherwise),
    ):
        time = "" if pair.slower is None else f", {ms:.3g} ms of the broker's threads for each"
        yield f"    {label:<17} {counted(requests, 'request')} in {counted(windows, 'window')}{time}, {throttled:.0f} % of them throttled"
    if not pair.may_share:
        yield "    they share neither user nor client-id, so they do not share a quota"


def shares_of(load: Load, place: int) -> list[tuple[str, float]]:
    """Return each client's share of a broker's load over all windows, largest first."""
    totals: dict[int, float] = {}
    here = load.place == place
    for client, amount in zip(load.client[here].tolist(), load.load[here].tolist(), strict=True):
        totals[client] = totals.get(client, 0.0) + amount
    whole = sum(totals.values()) or 1.0
    shares = [(client_name(load.clients[client]), 100 * amount / whole) for client, amount in totals.items()]
    return sorted(shares, key=lambda item: (-item[1], item[0]))
