"""Sluice in front of the shared brokers, without any quota unless a test starts its own."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.support.clients.topics import new_topic
from tests.support.kafka.broker import KafkaCluster
from tests.support.sluice_process import SluiceProcess


@dataclass(frozen=True, slots=True)
class Route:
    """The same cluster seen twice: through Sluice and directly."""

    sluice: SluiceProcess
    kafka: KafkaCluster

    @property
    def bootstrap(self) -> str:
        """Return where clients under test connect."""
        return self.sluice.bootstrap

    @property
    def direct(self) -> str:
        """Return the brokers' own addresses: what is true is read from there."""
        return self.kafka.bootstrap

    def new_topic(self, name: str, partitions: int = 1) -> str:
        """Create a topic at the broker; returns its full name."""
        return new_topic(self.direct, name, partitions=partitions)


@pytest.fixture(scope="session")
def route(kafka: KafkaCluster) -> Iterator[Route]:
    """Sluice in front of each broker in turn."""
    with SluiceProcess(kafka.bootstrap, name=f"sluice-{kafka.version}") as sluice:
        yield Route(sluice, kafka)
