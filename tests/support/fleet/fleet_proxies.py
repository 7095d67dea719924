"""The proxies of the members of a fleet in one process, on one clock: each has workers, and a hub with the messages of the product."""

from collections.abc import Callable
from random import Random
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
WAIT_MS = PUBLISH_MS // 2 + 5
"""What the hub adds to the time through the bus for D: the time that usage waits for its worker and for the next message on average."""
AGE_MS = LAG_MS + WAIT_MS
ROWS_MAX = 64


class ProxyMember(FleetMember):
    """A member whose workers are proxies.

    Attributes:
        proxies: its workers; `proxy`: the first of them.
        arrival_ms: when its last message arrives at all members.
        bus_ms: average time of its messages through the bus, as the hub measures it.
    """

    def __init__(self, number: int, loop: ManualLoop, bus_ms: float, burst_ms: int | None, workers: int, settings: dict[str, Any]) -> None:
        self.name, self.keys, self.bus_ms, self.lag_ms = f"edge-{number}", KEYS, bus_ms, round(bus_ms + WAIT_MS)
        self.segment, self.workers = new_segment(workers, ROWS_MAX, has_fleet=True), []
        self.assumes_silence, self.is_cut_off = True, False
        self.clock = Clock(0, 0)
        self.arrival_ms = 0
        self.proxies: list[ProxyFixture] = []
        for worker in range(workers):
            usage = SharedUsage(self.segment, worker, numbers=range(workers), fleet_key=KEYS.digests)
            publish_on_time(usage, loop)
            factories = usage if burst_ms is None else PacedGroups(burst_ms, factories=usage)
            self.proxies.append(ProxyFixture(loop=loop, factories=factories, **settings))
            self.proxies[-1].scopes.learn(1, BROKER)  # a fleet shares the usage of a broker whose node id is known
        self.proxy = self.proxies[0]
        self.start_hub(loop.now_ms)

    def returned(self, took_ms: float) -> None:
        """An own message has come back."""
        self.bus_ms += (took_ms - self.bus_ms) / 8
        self.lag_ms = round(self.bus_ms + WAIT_MS)


class FleetProxies:
    """Members with a proxy each; connections go to them in turn, or to one of them.

    Args:
        burst_ms: burst of all groups, which are paced; None: they have windows.
        bus: returns the time of a message through the bus, in ms.
        random: for the times at which members publish; None: at one time.
        workers: of each member.
    """

    def __init__(
        self,
        members: int,
        *,
        burst_ms: int | None = None,
        bus: Callable[[], float] = lambda: LAG_MS,
        random: Random | None = None,
        workers: int = 1,
        **settings: Any,
    ) -> None:
        self.loop = ManualLoop()
        self.members = [ProxyMember(number, self.loop, bus(), burst_ms, workers, settings) for number in range(members)]
        self._bus = bus
        self._connected = 0
        self._silent: set[ProxyMember] = set()
        for member in self.members:
            if random is None:
                self._publish(member)
            else:
                self.loop.call_later(random.randrange(PUBLISH_MS) / 1_000, self._publish, member)

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

    def _publish(self, member: ProxyMember) -> None:
        """Let a member publish, and again after `PUBLISH_MS`; its messages arrive later, in their order."""
        now_ms = self.loop.now_ms
        for data in member.publish(now_ms):
            member.arrival_ms = max(member.arrival_ms, now_ms + round(self._bus()))
            self.loop.call_later((member.arrival_ms - now_ms) / 1_000, self._deliver, member, data, now_ms)
        self.loop.call_later(PUBLISH_MS / 1_000, self._publish, member)

    def silence(self, number: int) -> None:
        """Let the other members hear nothing of a member from now on, as if it had ended."""
        self._silent.add(self.members[number])

    def _deliver(self, sender: ProxyMember, data: bytes, sent_ms: int) -> None:
        if sender in self._silent:
            return
        sender.returned(self.loop.now_ms - sent_ms)
        for member in self.members:
            if member is not sender:
                member.receive(data, self.loop.now_ms)

    def __enter__(self) -> Self:
        """Let the proxies' clock show the time of this fixture."""
        self.members[0].proxy.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.members[0].proxy.__exit__(kind, error, trace)
