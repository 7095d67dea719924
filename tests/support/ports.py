"""Free TCP ports for children that get their ports before they start.

The ports are below the kernel's range of outgoing connections, so between the choice and the bind only another test run can take one; the
random start makes that unlikely. A port that was given lately is not given again: its receiver may not have bound it yet.
"""

from collections import deque

from proxy.demo.ports import FIRST_PORT, LAST_PORT, TRIES, free_ports
from tests.support.side_by_side import worker

BROKER_PORTS = 12
"""The number of broker ports P + 1 + node_id after a bootstrap port P."""

_given: deque[range] = deque(maxlen=64)
"""Ports given lately. Remembering all of them would exhaust the range: a run of the suite asks for more ports than exist."""


def free_port() -> int:
    """Return a port without a listener at 127.0.0.1."""
    return free_port_range(1)


def free_bootstrap_port() -> int:
    """Return a port P such that P + 1 ... P + 12 are free as well: a gateway's bootstrap port and its brokers' ports."""
    return free_port_range(1 + BROKER_PORTS)


def free_port_range(count: int) -> int:
    """Return the first of `count` neighbouring free ports.

    Raises:
        OSError, RuntimeError: there is no such range.
    """
    for _ in range(TRIES):
        first = free_ports(count)
        ports = range(first, first + count)
        if _is_of_this_process(ports) and not any(first < given.stop and given.start < ports.stop for given in _given):
            _given.append(ports)
            return first
    raise RuntimeError(f"no {count} neighbouring ports that were not given lately")


def _is_of_this_process(ports: range) -> bool:
    """Whether a port belongs to this test process: test processes that run side by side have disjoint ports, since a chosen port may
    not be bound yet.
    """
    number, count = worker()
    share = (LAST_PORT - FIRST_PORT) // count
    first = FIRST_PORT + number * share
    return first <= ports.start and ports.stop <= first + share


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of the first address of a bootstrap string."""
    host, _, port = address.split(",")[0].rpartition(":")
    return host, int(port)
