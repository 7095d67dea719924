"""The report on noisy neighbours, from the load and the pairs."""

from typing import Final

import numpy as np

from pipeline.neighbours.load import Load
from pipeline.neighbours.pairs import Pair, client_name
from pipeline.report.charts.share_chart import draw_shares
from pipeline.report.page import Figure, Page, Section, draw_page, draw_table

BANDS: Final = 5
PLACES_MAX: Final = 8
WINDOWS_MAX: Final = 400


def draw_neighbours(pairs: list[Pair], load: Load) -> str:
    """Return the report as HTML."""
    page = Page("Noisy neighbours", f"Load is {load.measured}, in windows of {load.window_ms / 1_000:g} s.")
    slowest = max((pair.slower or 1.0 for pair in pairs), default=1.0)
    page.figures = [
        Figure(f"{len({pair.neighbour for pair in pairs})}", "noisy neighbours"),
        Figure(f"{len({pair.victim for pair in pairs})}", "affected clients", "bad" if pairs else "good"),
        Figure(f"{slowest:.1f} x", "slower, at worst"),
        Figure(f"{len(load.clients)}", "clients"),
    ]
    charts = [_chart(load, place) for place in range(min(len(load.places), PLACES_MAX))]
    page.sections.append(Section("Load of each broker", "Each band is one client; the rest is grey.", charts))
    says = "Figures of a client while another one makes most of the load, and at other times. A coincidence does not prove a cause."
    header = ("neighbour", "victim", "broker", "share of the load", "windows with the neighbour", "other windows", "effect on the victim")
    rows = ((pair.neighbour, pair.victim, pair.node, f"{pair.share_percent:.0f} %", pair.windows, pair.others, pair.says) for pair in pairs)
    body = draw_table(header, rows) if pairs else "<p>No client was slower or throttled more while a neighbour made most of the load.</p>"
    page.sections.append(Section("Pairs", says, [body]))
    page.foot = "Made by sluice meter neighbours. All times are UTC."
    return draw_page(page)


def _chart(load: Load, place: int) -> str:
    here = load.place == place
    first, last = int(load.window[here].min()), int(load.window[here].max())
    per = -(-(last - first + 1) // WINDOWS_MAX)
    columns = (load.window[here] - first) // per
    windows = int(columns.max()) + 1
    totals = np.bincount(load.client[here], weights=load.load[here], minlength=len(load.clients))
    largest = [client for client in np.argsort(-totals, kind="stable")[:BANDS].tolist() if totals[client] > 0]
    bands = []
    for client in largest:
        own = load.client[here] == client
        bands.append(np.bincount(columns[own], weights=load.load[here][own], minlength=windows).tolist())
    rest = ~np.isin(load.client[here], largest)
    names = [client_name(load.clients[client]) for client in largest]
    if rest.any():
        bands.append(np.bincount(columns[rest], weights=load.load[here][rest], minlength=windows).tolist())
        names.append("others")
    proxy_id, node = load.places[place]
    return draw_shares(f"broker {node} ({proxy_id})", names, first * load.window_ms, per * load.window_ms, bands)
