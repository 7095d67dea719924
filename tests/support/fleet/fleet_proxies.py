"""The proxies of the members of a fleet in one process, on one clock: each has one worker, and a hub with the messages of the product."""

from types import TracebackType
from typing import Any, Self

from proxy.enforcement.paced.factory import PacedGroups
from proxy.fleet.clock import Clock
from proxy.shared_usage.shared_usage import SharedUsage
from tests.support.fleet.fleet_members import KEYS, FleetMember
from tests.support.memory.memory_connection import BROKER, ManualLoop, Peer, ProxyFixture
from tests.support.memory.shared_workers import new_segment
from tests.support.memory.worker_proxies import publish_on_time

PUBLISH_MS = 50
LAG_MS = 10
"""Time of a message through the bus."""
AGE_MS = LAG_MS + PUBLISH_MS // 2 + 5


class ProxyMember(FleetMember):
    """A member whose worker is a proxy."""

    def __init__(self, number: int, loop: ManualLoop, burst_ms: int | None, settings: dict[str, Any]) -> None:
        self.name, self.keys, self.lag_ms = f"edge-{number}", KEYS, AGE_MS
        self.segment, self.workers = new_segment(1, has_fleet=True), []
        self.assumes_silence, self.is_cut_off = True, False
        self.clock = Clock(0, 0)
        usage = SharedUsage(self.segment, 0, fleet_key=KEYS.digests)
        publish_on_time(usage, loop)
        factories = usage if burst_ms is None else PacedGroups(burst_ms, factories=usage)
        self.proxy = ProxyFixture(loop=loop, factories=factories, **settings)
        self.proxy.scopes.learn(1, BROKER)  # a fleet shares the usage of a broker whose node id is known
        self.start_hub(loop.now_ms)


class FleetProxies:
    """Members with a proxy each; connections go to them in turn, or to one of them.

    Args:
        burst_ms: burst of all groups, which are paced; None: they have windows.
    """

    def __init__(self, members: int, *, burst_ms: int | None = None, **settings: Any) -> None:
        self.loop = ManualLoop()
        self.members = [ProxyMember(number, self.loop, burst_ms, settings) for number in range(members)]
        self._connected = 0
        self._publish()

    def connect(self, member: int | None = None) -> Peer:
        """Return a new connection to a member, or to the next one."""
        self._connected += 1
        return self.members[self._connected % len(self.members) if member is None else member].proxy.connect()

    @property
    def now_ms(self) -> int:
        """The time in milliseconds."""
        return self.loop.now_ms

    def wait(self, ms: int) -> None:
        """Advance the time at all members; deadlines on the way fire."""
        self.loop.run_until(self.loop.now_ms + ms)

    def _publish(self) -> None:
        """Let all members publish, and again after `PUBLISH_MS`; messages arrive after `LAG_MS`."""
        for member in self.members:
            for data in member.publish(self.loop.now_ms):
                self.loop.call_later(LAG_MS / 1_000, lambda sender=member, data=data: self._deliver(sender, data))
        self.loop.call_later(PUBLISH_MS / 1_000, self._publish)

    def _deliver(self, sender: ProxyMember, data: bytes) -> None:
        for member in self.members:
            if member is not sender:
                member.receive(data, self.loop.now_ms)

    def __enter__(self) -> Self:
        """Let the proxies' clock show the time of this fixture."""
        self.members[0].proxy.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.members[0].proxy.__exit__(kind, error, trace)
