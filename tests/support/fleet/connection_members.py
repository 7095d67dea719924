"""Members of a fleet that share connections, inside one process: supervisors without sockets, on a clock that the test moves."""

from collections.abc import Sequence

from proxy.fleet.bus.bus import Received
from proxy.fleet.connections.pending import PendingConnections
from proxy.fleet.wire import NO_NAMES, NO_THROTTLES, NO_TOTALS, About, Message, encoded
from proxy.session.login.principal_connections import PrincipalConnections
from proxy.workers.messaging.messages import OtherConnections
from proxy.workers.shared_connections import SharedConnections
from quota.connections.connection_quotas import ACCEPTED, ConnectionQuotas, Decision, Outcome
from quota.connections.connection_rate import ConnectionRate
from quota.entity import KafkaPrincipal
from tests.support.fleet.fleet_members import KEYS, FleetMember

START_MS = 1_000_000
LISTENER = "clients"
TABLE = -2
ALICE = KafkaPrincipal("User", "alice")


class Time:
    """The clock of all members."""

    def __init__(self) -> None:
        self.now_ms = START_MS

    def __call__(self) -> int:
        """Return the time in monotonic ms."""
        return self.now_ms


class ConnectionMember(FleetMember):
    """A member with the limits of a test.

    Attributes:
        quotas, principals: of its supervisor.
        shared: what it shares.
    """

    def __init__(self, name: str, time: Time, *, has_begun: bool = True) -> None:
        super().__init__(name, 1, 1e9, time())
        self.time = time
        self.pending = PendingConnections()
        self.quotas = ConnectionQuotas([LISTENER])
        self.principals = PrincipalConnections()
        self.shared = SharedConnections(self.quotas, self.principals, KEYS.digests, time)
        self.shared.publish = self.pending.add
        if has_begun:
            self.shared.begin([])

    def limit(self, *, count: int | None = None, rate: int | None = None, overall: int | None = None, principal: int | None = None) -> None:
        """Set the limits on addresses, the rate of the listener and the process, and the limit on principals."""
        if count is not None:
            self.quotas.ips.max_connections = count
        self.quotas.ips.replace_rates(rate, {})
        if overall is not None:
            self.quotas.update_process(10_000, overall)
            self.quotas.update_listener(LISTENER, 10_000, overall)
        self.principals.max_connections = principal

    def connect(self, address: str = "10.0.0.1") -> Decision:
        """Let a client connect; return the decision: that of the listener if it delays, otherwise that of the address."""
        now_ms, listener = self.time(), self.quotas.listeners[LISTENER]
        decision = self.quotas.arrive(listener, now_ms)
        if decision is not ACCEPTED:
            return decision
        self.quotas.take_slot(listener)
        return self.quotas.admit(listener, (TABLE, address), now_ms)

    def admits(self, address: str = "10.0.0.1") -> bool:
        """Let a client connect; return whether it is served."""
        return self.connect(address).outcome is Outcome.ACCEPTED

    def leave(self, address: str = "10.0.0.1") -> None:
        """End a connection."""
        self.quotas.leave(self.quotas.listeners[LISTENER], (TABLE, address))

    def login(self) -> bool:
        """Let a connection log in as alice; return whether it may stay."""
        return self.principals.enter(ALICE, only_observes=False)

    def rate(self, address: str = "10.0.0.1") -> ConnectionRate:
        """Return the rate of an address."""
        (found,) = (rate for key, rate in self.quotas.ips.rates() if key[1] == address)
        return found

    def message(self) -> bytes:
        """Return a message with what is new, as the hub publishes it."""
        self.shared.flush()
        connections = self.pending.take(1_000_000)
        self.pending.published()
        about = About(self.name, "1", "mute")
        sequence = self.rows.next_sequence()
        return encoded(Message(self.segment.incarnation, sequence, 7, 0, about, NO_NAMES, NO_TOTALS, NO_THROTTLES, connections), self.keys)

    def hear(self, data: bytes, at_ms: int | None = None, *, is_new: bool = True) -> None:
        """Take a message of another member that came now, or at another time."""
        now_ms = self.time() if at_ms is None else at_ms
        message = self.members.read(Received(0, 0, data), now_ms)
        assert message is not None
        if self.members.take(message, now_ms, counts=is_new, clock=self.clock) and len(message.connections):
            self.shared.take(OtherConnections(message.incarnation, now_ms, is_new, message.connections.tobytes()))
        self.shared.heard({peer.incarnation: now_ms - peer.heard_ms for peer in self.members.peers.values()})


def tell(some: Sequence[ConnectionMember]) -> None:
    """Let every member hear what the others have to say."""
    messages = [(one, one.message()) for one in some]
    for sender, data in messages:
        for one in some:
            if one is not sender:
                one.hear(data)
