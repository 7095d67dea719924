"""The address book of brokers: learnt from responses, and bound before clients get a port."""

import pytest

from proxy.session.addresses import AddressBook, ClientView

PLACES = {1: ("sluice", 19_093), 2: ("sluice", 19_094)}


def test_a_port_is_bound_before_it_is_named() -> None:
    """A broker's port is bound once, before its address is returned."""
    bound: list[int] = []
    book = AddressBook(lambda node_id: bound.append(node_id) or True)  # type: ignore[func-returns-value]
    view = ClientView(book, PLACES.get)
    assert view.client_address(1, "b1", 9092) == ("sluice", 19_093)
    assert view.client_address(1, "b1", 9092) == ("sluice", 19_093)
    assert bound == [1]
    assert book.upstream == {1: ("b1", 9092)}


def test_a_port_that_cannot_be_bound_is_tried_again() -> None:
    """A broker whose port cannot be bound has no address until a later attempt succeeds."""
    answers = iter([False, True])
    view = ClientView(AddressBook(lambda _: next(answers)), PLACES.get)
    assert view.client_address(2, "b2", 9092) is None
    assert view.client_address(2, "b2", 9092) == ("sluice", 19_094)


@pytest.mark.parametrize(
    ("node_id", "host", "port"), [(-1, "", -1), (-1, "b", 1), (1, "", 9092), (1, "b", 0), (1, "b", -1), (1, "b", 65_536)]
)
def test_what_is_no_address_is_not_learnt(node_id: int, host: str, port: int) -> None:
    """A missing node id, an empty host or an invalid port is not learnt."""
    book = AddressBook(lambda _: pytest.fail("bound"))
    assert ClientView(book, PLACES.get).client_address(node_id, host, port) is None
    assert book.upstream == {}


def test_a_broker_that_moves() -> None:
    """A broker that moves keeps its client port, which then leads to the new address."""
    moves: list[tuple[int, tuple[str, int]]] = []
    book = AddressBook(lambda _: True)
    book.on_move = lambda node_id, address: moves.append((node_id, address))
    view = ClientView(book, PLACES.get)
    for host in ("b1", "b1", "b1-new"):
        assert view.client_address(1, host, 9092) == ("sluice", 19_093)
    assert book.upstream[1] == ("b1-new", 9092)
    assert moves == [(1, ("b1", 9092)), (1, ("b1-new", 9092))]


def test_a_listener_without_a_port_for_a_broker() -> None:
    """A listener without a port for a broker returns no address for it."""
    assert ClientView(AddressBook(lambda _: True), lambda _: None).client_address(3, "b3", 9092) is None
