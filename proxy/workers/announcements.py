"""State that all workers share. Each change is sent to the running workers, and the whole state to a new one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from protocol.messages.metadata import Topology
from proxy.quota_store.store import StoreContent, different_entities
from proxy.workers.messaging.messages import AnyMessage, Authority, BrokerAddress, BrokerReached, Cluster, Ports, Quotas


class Announcements:
    """Quotas and switches, ports, brokers, and whether the brokers' authorizer can be trusted.

    Args:
        broadcast: sends a message to every running worker.
        on_quotas: called with the generation of quotas after they were sent to all workers.

    Attributes:
        generation: number of the newest quotas; each change increments it.
        wants_cluster: whether a callback of the workers needs topics, partitions and leaders.
    """

    def __init__(self, broadcast: Callable[[AnyMessage], None], on_quotas: Callable[[int], None]) -> None:
        self._broadcast = broadcast
        self._on_quotas = on_quotas
        self._content = StoreContent({}, {})
        self.generation = 0
        self._ports: dict[str, Ports] = {}
        self._brokers: dict[tuple[int, int], BrokerAddress] = {}
        self._reached: dict[tuple[int, int], BrokerReached] = {}
        self._cluster: Cluster | None = None
        self._authority = Authority(True)
        self.wants_cluster = False

    def all(self) -> list[AnyMessage]:
        """Return the messages that carry the whole state."""
        entities = [(entity, dict(values)) for entity, values in self._content.quotas.items()]
        quotas = Quotas(self.generation, True, entities, dict(self._content.switches), None, dict(self._content.pacing))
        cluster = [] if self._cluster is None else [self._cluster]
        return [*self._ports.values(), *self._brokers.values(), *self._reached.values(), *cluster, self._authority, quotas]

    def content_arrived(self, content: StoreContent, who: str | None) -> None:
        """Send the current quotas and switches; `who` is the principal that requested the change, None: it came from another source."""
        before, self._content = self._content, content
        self.generation += 1
        entities = [(entity, dict(content.quotas.get(entity, {}))) for entity in different_entities(before.quotas, content.quotas)]
        self._broadcast(Quotas(self.generation, False, entities, dict(content.switches), who, dict(content.pacing)))
        self._on_quotas(self.generation)

    def learn_cluster(self, topology: Topology) -> None:
        """Send the brokers and partitions, when a callback needs them."""
        cluster = Cluster(
            topology.cluster_id,
            [(broker.node_id, broker.host, broker.port) for broker in topology.brokers],
            [(part.topic, part.partition, part.leader) for part in topology.partitions],
        )
        if self.wants_cluster and cluster != self._cluster:
            self._cluster = cluster
            self._broadcast(cluster)

    def ports_bound(self, listener: str, bootstrap_port: int, brokers: Mapping[int, int]) -> None:
        """Send the ports of a listener: the bootstrap port, and the port of each broker by node id."""
        ports = self._ports[listener] = Ports(listener, bootstrap_port, dict(brokers))
        self._broadcast(ports)

    def broker_met(self, broker: BrokerAddress) -> None:
        """Send the address of a broker."""
        if self._brokers.get((broker.route, broker.node_id)) != broker:
            self._brokers[broker.route, broker.node_id] = broker
            self._broadcast(broker)

    def broker_reached(self, broker: BrokerReached) -> None:
        """Send which broker is at an address, so that traffic of the bootstrap port counts for it in every worker."""
        if self._reached.get((broker.route, broker.node_id)) != broker:
            self._reached[broker.route, broker.node_id] = broker
            self._broadcast(broker)

    @property
    def reached(self) -> Iterable[BrokerReached]:
        """The brokers that workers have reached."""
        return self._reached.values()

    def trust(self, is_trusted: bool) -> None:
        """Send whether the brokers' authorizer can be trusted with changes of quotas."""
        if is_trusted != self._authority.is_trusted:
            self._authority = Authority(is_trusted)
            self._broadcast(self._authority)
