"""Cells that count the usage of clients."""

import pytest

from proxy.meter.usage import FETCH, GROUP, PRODUCE, Place, UsageCells
from proxy.telemetry.client_usage import OTHER, UsageTable
from quota.entity import ANONYMOUS

PLACES = [Place(("b", 1), "default"), Place(("b", 2), "default")]
REQUEST_BYTES, PRODUCED, FETCHED = 5, 7, 8  # columns of a row


def test_the_bytes_of_a_client_are_those_of_all_its_cells() -> None:
    """A client's bytes are the sum over all brokers, before and after its rows are taken."""
    usages, cells = UsageTable(), UsageCells()
    alice = usages.get("ANONYMOUS", "alice")
    for turn in (1, 2):
        for at, place in enumerate(PLACES, 1):
            cells.cell(place, alice, ANONYMOUS, PRODUCE, usages.other).request_bytes += 100 * at
            cells.cell(place, alice, ANONYMOUS, FETCH, usages.other).request_bytes += 1
            cells.cell(place, alice, ANONYMOUS, FETCH, usages.other).fetch_bytes += 10 * at
            cells.cell(place, alice, ANONYMOUS, GROUP, usages.other).request_bytes += 7
        assert (alice.produce_bytes, alice.fetch_bytes) == (300 * turn, 30 * turn)
        for place in PLACES:
            for name in (PRODUCE, FETCH, GROUP):
                cells.cell(place, alice, ANONYMOUS, name, usages.other).requests += 1
        rows = cells.take()
        assert [sum(row[at] for row in rows) for at in (REQUEST_BYTES, PRODUCED, FETCHED)] == [300 + 2 + 14, 300, 30]
        assert (alice.produce_bytes, alice.fetch_bytes) == (300 * turn, 30 * turn)


@pytest.mark.parametrize("api_class", [PRODUCE, FETCH])
def test_bytes_beyond_the_bound_are_those_of_others(api_class: str) -> None:
    """Clients beyond the limit of cells share one, and their bytes are counted once for all others."""
    usages, cells = UsageTable(), UsageCells(cells_max=1)
    known, *crowd = (usages.get("ANONYMOUS", name) for name in ("known", "a", "b"))
    for usage in (known, *crowd):
        cell = cells.cell(PLACES[0], usage, ANONYMOUS, api_class, usages.other)
        assert cells.cell(PLACES[0], usage, ANONYMOUS, api_class, usages.other) is cell
        cell.requests += 1
        cell.request_bytes += 10
        cell.fetch_bytes += 10
    assert [usage.produce_bytes + usage.fetch_bytes for usage in (known, *crowd, usages.other)] == [10, 0, 0, 20]
    names = {client.client_ref: client.client_id for client in cells.new_clients}
    assert [(names[row[0]], row[4]) for row in cells.take()] == [("known", 1), (OTHER, 2)]


def test_one_maker_fills_no_more_than_half_of_the_cells() -> None:
    """One address fills at most half of the cells, and a new client of another address gets its own."""
    usages, cells = UsageTable(), UsageCells(cells_max=10, cells_per_maker_max=2)
    for number in range(20):
        cells.cell(PLACES[0], usages.get("ANONYMOUS", f"x{number}", "192.0.2.1"), ANONYMOUS, GROUP, usages.other)
    assert len(cells) == 6
    newcomer = cells.cell(PLACES[0], usages.get("ANONYMOUS", "etl", "192.0.2.2"), ANONYMOUS, GROUP, usages.other)
    assert len(cells) == 7
    assert {client.client_ref: client.client_id for client in cells.new_clients}[newcomer.client_ref] == "etl"
