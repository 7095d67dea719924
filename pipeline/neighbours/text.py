"""Neighbours for people: one screen."""

from collections.abc import Iterator

from pipeline.neighbours.load import Load
from pipeline.neighbours.pairs import Pair, client_name
from pipeline.text import table_lines

SHOWN = 20


def lines_of(pairs: list[Pair], load: Load, share_percent: float) -> Iterator[str]:
    """Yield who is how large, and the pairs."""
    yield f"load        {load.measured} in windows of {load.window_ms / 1_000:g} s; loud is who makes {share_percent:g} % of a broker's"
    for place, (proxy_id, node) in enumerate(load.places):
        largest = shares_of(load, place)[:3]
        yield f"broker {node:<4} {proxy_id}: " + ", ".join(f"{name} {share:.0f} %" for name, share in largest)
    yield ""
    if not pairs:
        yield "nobody was slower or waited more while a neighbour was loud"
        return
    header = ("neighbour", "victim", "broker", "share", "loud windows", "others", "the victim was")
    rows = ((pair.neighbour, pair.victim, pair.node, f"{pair.share_percent:.0f} %", pair.windows, pair.others, pair.says) for pair in pairs)
    yield from table_lines(header, list(rows)[:SHOWN])
    if len(pairs) > SHOWN:
        yield f"... and {len(pairs) - SHOWN} more (--format json or csv shows all)"


def shares_of(load: Load, place: int) -> list[tuple[str, float]]:
    """Return each client's share of a broker's load over everything, the largest first."""
    totals: dict[int, float] = {}
    here = load.place == place
    for client, amount in zip(load.client[here].tolist(), load.load[here].tolist(), strict=True):
        totals[client] = totals.get(client, 0.0) + amount
    whole = sum(totals.values()) or 1.0
    shares = [(client_name(load.clients[client]), 100 * amount / whole) for client, amount in totals.items()]
    return sorted(shares, key=lambda item: (-item[1], item[0]))
