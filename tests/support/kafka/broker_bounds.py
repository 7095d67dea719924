"""The groups and bounds of a broker, as the broker itself reports them (see QuotaBounds.java)."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass

from tests.support.ports import free_port_range

Tags = tuple[str, str]
"""User, as Kafka writes it, and client-id."""


@dataclass(frozen=True, slots=True)
class BrokerGroup:
    """A group of clients that share a produce quota, in bytes per second."""

    bound: float
    rate: float


class BrokerBounds:
    """Reads the bounds of one broker that was started with `settings`."""

    def __init__(self) -> None:
        self._port = free_port_range(1)

    @property
    def settings(self) -> Mapping[str, str | int]:
        """Return the properties for the broker."""
        return {"metric.reporters": "QuotaBounds", "quota.bounds.port": self._port}

    def groups(self) -> dict[Tags, BrokerGroup]:
        """Return all groups that the broker has now."""
        with socket.create_connection(("127.0.0.1", self._port), timeout=10) as connection:
            text = connection.makefile("rb").read().decode()
        rows = [line.split("\t") for line in text.splitlines()]
        return {(user, client_id): BrokerGroup(float(bound), float(rate)) for user, client_id, bound, rate in rows}
