"""Workers that share usage through one segment in memory, on one clock, each with a meter and a writer of its own."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from metering_format.event_kinds import MUTATION, UNCHECKED, UNRECORD
from metering_format.places import FLEET, PACED, SHARED
from proxy.enforcement.groups.enforced_groups import EnforcedGroup, EnforcedMutationGroup
from proxy.enforcement.paced.factory import PacedGroups, PacedMaker
from proxy.enforcement.paced.group import PacedGroup
from proxy.enforcement.paced.manager import PaceableManager
from proxy.enforcement.paced.request_manager import PaceableRequestManager
from proxy.enforcement.pacing import Pacings, PacingTable
from proxy.meter.meter import Meter, Metered, TracingMeter
from proxy.metering.writer import MeteringWriter, WriterSettings
from proxy.shared_usage.segment import Segment
from proxy.shared_usage.shared_usage import SharedUsage
from quota.entity import ANONYMOUS, ClientQuotaEntity, ClientQuotaType
from quota.paced_schedule import MS_NS
from quota.request_time import PERCENT_PER_NANOSECOND
from tests.support.memory.shared_workers import NUM_SAMPLES, WINDOW_MS
from tests.support.metering.metering_writer_fixture import RUN, STATE, WALL_MS, convert_here

CLIENT_IDS = ("etl", "web", "timed")
TIMED = 2
BOUNDS = (20_000.0, 3_000.0, 0.2)


class Step(NamedTuple):
    """An action of one worker.

    It is record, unchecked, back (take back the last record), publish, expire (forget the group), rotate, or pace (groups change between
    a window and a schedule).
    """

    worker: int
    kind: str
    group: int
    value: int
    after_ms: int


class Member(NamedTuple):
    """A member of a fleet: its name, the key of digests, how far its clock is ahead, and the setting `fleet`."""

    name: str
    key: bytes
    ahead_ms: int
    setting: dict[str, Any]


class Clock:
    """Monotonic ms of the machine."""

    now_ms = 5_000


class MeteringWorker:
    """One life of a worker."""

    def __init__(
        self,
        directory: Path,
        segment: Segment,
        number: int,
        clock: Clock,
        *,
        life: int = 0,
        level: str = "packed",
        member: Member | None = None,
        burst_ms: int | None = None,
        changes_pacing: bool = False,
    ) -> None:
        self.clock = clock
        self.usage = SharedUsage(segment, number, fleet_key=b"" if member is None else member.key)
        scope = self.usage.of_scope("1")
        self._makers = [scope.maker(one) if burst_ms is None else scope.paced_maker(one) for one in map(_type_of, range(len(BOUNDS)))]
        self._burst_ms = burst_ms
        self._pacings: Pacings | None = None
        if changes_pacing:
            assert burst_ms is not None
            self._make_paceable(burst_ms)
        self.groups: list[EnforcedGroup | None] = [None] * len(BOUNDS)
        self._recorded: list[list[tuple[float, int]]] = [[] for _ in BOUNDS]
        shared: dict[str, Any] = {"segment": segment.identity, "worker": number, "workers": segment.workers}
        if segment.fleet is not None:
            shared["numbers"] = list(range(segment.fleet))
        run_id = f"20261121T12000{life}Z-0a1b2{'c' if member is None else member.name}3{number}"
        self.offset_ms = WALL_MS + 7 * number + life + (0 if member is None else member.ahead_ms)
        name, of_fleet = ("edge", {}) if member is None else (member.name, {FLEET: member.setting})
        header = {**RUN, "run_id": run_id, "proxy_id": f"{name}-{number}", "wall_offset_ms": self.offset_ms, "level": level}
        paced = {} if burst_ms is None or changes_pacing else {PACED: burst_ms}
        header["settings"] = {**RUN["settings"], SHARED: shared, **of_fleet, **paced}
        self.writer = MeteringWriter(
            WriterSettings(directory, header), lambda: clock.now_ms + self.offset_ms, lambda _problem: None, None, convert_here
        )
        meter_of_level = TracingMeter if level == "trace" else Meter
        self.meter = meter_of_level(self.writer.hand_over, _describe, self.offset_ms, self._all_groups)
        self._level = level
        self._settings: dict[str, int] = {}
        self.note_state()
        self.usage.on_remote = self.meter.remote
        self.writer.start()

    def _make_paceable(self, burst_ms: int) -> None:
        """Let the groups be those of managers, with windows at first."""
        factories = PacedGroups(burst_ms, paces_others=False, factories=self.usage)
        self._pacings = factories.pacings
        scope, window = factories.of_scope("1"), {"num_samples": NUM_SAMPLES, "window_ms": WINDOW_MS}
        by_bytes, by_time = (scope.maker(one) for one in (ClientQuotaType.PRODUCE, ClientQuotaType.REQUEST))
        assert isinstance(by_bytes, PacedMaker)
        assert isinstance(by_time, PacedMaker)
        produced = PaceableManager(ClientQuotaType.PRODUCE, by_bytes, **window)
        timed = PaceableRequestManager(by_time, **window)
        self._managers = [timed if at == TIMED else produced for at in range(len(BOUNDS))]
        for manager, client_id, bound in zip(self._managers, CLIENT_IDS, BOUNDS, strict=True):
            manager.update_quota(ClientQuotaEntity(client_id=client_id), bound)

    def pace(self) -> None:
        """Change all groups from a window to a schedule, or back."""
        assert self._pacings is not None
        assert self._burst_ms is not None
        self._pacings.table = PacingTable({} if self._pacings.paces else {"all": "paced"})
        replaced: dict[EnforcedGroup, EnforcedGroup] = {}
        for manager in dict.fromkeys(self._managers):
            replaced |= manager.repace(self.clock.now_ms, self.meter.schedule_begins)
        self.groups = [group if group is None else replaced.get(group, group) for group in self.groups]
        if PACED not in self._settings:
            self._settings[PACED] = self._burst_ms
            self.meter.flush()
            self.writer.add_settings(self._settings)

    def note_state(self, fleet: str | None = None) -> None:
        """Meter the settings, and what is known of the fleet."""
        about = {"from_seq": self.meter.next_seq, "ts_ms": self.clock.now_ms + self.offset_ms, "level": self._level, "fleet": fleet}
        self.meter.add_fact({"state": {**STATE, **about}})

    def _all_groups(self) -> list[EnforcedGroup]:
        return [group for group in self.groups if group is not None]

    def group(self, at: int) -> EnforcedGroup:
        """Return a group; it is created on first use."""
        group = self.groups[at]
        if group is None and self._pacings is not None:
            group = self.groups[at] = self._managers[at].group(ANONYMOUS, CLIENT_IDS[at], self.clock.now_ms)
        if group is None:
            settings: dict[str, Any] = {"num_samples": NUM_SAMPLES, "window_ms": WINDOW_MS, "created_ms": self.clock.now_ms}
            tags = {"user": "", "client-id": CLIENT_IDS[at]}
            if self._burst_ms is not None:
                settings["burst_ns"] = self._burst_ms * MS_NS
            group = self.groups[at] = self._makers[at](tags, BOUNDS[at], **settings)
        return group

    def take(self, step: Step) -> None:
        """Perform a step."""
        now_ms, group = self.clock.now_ms, self.group(step.group)
        is_timed = step.group == TIMED
        value = step.value * 997 if is_timed else step.value
        amount = value * PERCENT_PER_NANOSECOND if is_timed else float(value)
        match step.kind:
            case "record" if isinstance(group, PacedGroup):
                self._pass_paced(group, amount, value, now_ms)
            case "record":
                wait_ms = group.record(amount, now_ms)
                if wait_ms > 0:
                    self.meter.record(group, value, wait_ms, wait_ms, now_ms, 1, 9)
                else:
                    self.meter.passed(group, value, now_ms, 1, 9)
                self._recorded[step.group].append((amount, value))
            case "unchecked":
                group.record_unchecked(amount, now_ms)
                self.meter.record_unchecked(group, value, now_ms, 1, 9, UNCHECKED)
            case "back" if self._recorded[step.group]:  # a session takes back only what it has recorded
                amount, value = self._recorded[step.group].pop()
                group.record_unchecked(-amount, now_ms)
                self.meter.record_unchecked(group, -value, now_ms, 1, 9, UNRECORD)
            case "publish":
                self.usage.publish_all(now_ms)
            case "expire":
                group.leave()
                self.groups[step.group] = None
                self._recorded[step.group].clear()
            case "pace" if self._pacings is not None:
                self.pace()
            case "rotate":
                self.meter.flush()
                self.writer.rotate()

    def _pass_paced(self, group: PacedGroup, amount: float, value: int, now_ms: int) -> None:
        """Let a request pass if the schedule admits it now."""
        group.refresh(now_ms)
        if not group.wait_ms(now_ms):
            group.record(amount, now_ms)
            self.meter.passed(group, value, now_ms, 1, 9)

    def publish(self, now_ms: int) -> None:
        """Publish, as a worker's timer does."""
        self.usage.publish_all(now_ms)

    def stop(self) -> None:
        """Publish and write everything."""
        self.usage.publish_all(self.clock.now_ms)
        self.meter.finish(self.writer.hand_over_last)
        assert self.writer.stop(30)


def play(
    directory: Path,
    steps: Sequence[Step],
    workers: int = 2,
    *,
    level: str = "packed",
    burst_ms: int | None = None,
    changes_pacing: bool = False,
) -> None:
    """Let workers perform the steps, while each publishes every 10 ms, and write their file sets.

    Args:
        burst_ms: burst of groups, which are paced; None: they have windows.
        changes_pacing: whether they begin with windows, and change in a worker at its steps "pace".
    """
    segment, clock = Segment.create(workers, 16, NUM_SAMPLES, WINDOW_MS), Clock()
    paced: dict[str, Any] = {"burst_ms": burst_ms, "changes_pacing": changes_pacing}
    its = [MeteringWorker(directory, segment, number, clock, level=level, **paced) for number in range(workers)]
    for step in steps:
        end_ms = clock.now_ms + step.after_ms
        while clock.now_ms < end_ms:
            clock.now_ms = min(clock.now_ms + 10 - clock.now_ms % 10, end_ms)
            for worker in its if clock.now_ms % 10 == 0 else ():
                worker.usage.publish_all(clock.now_ms)
        its[step.worker % workers].take(step)
    for worker in its:
        worker.stop()


def _type_of(at: int) -> ClientQuotaType:
    return ClientQuotaType.REQUEST if at == TIMED else ClientQuotaType.PRODUCE


def _describe(group: Metered) -> tuple[dict[str, Any], dict[str, Any]]:
    assert isinstance(group, EnforcedGroup | EnforcedMutationGroup)
    client_id = group.tags["client-id"]
    quota_type = "Request" if client_id == CLIENT_IDS[TIMED] else "Produce"
    if isinstance(group, EnforcedMutationGroup):
        quota_type = MUTATION
    about = {"quota_type": quota_type, "scope": "broker", "node_id": 1, "tag_user": "", "tag_client_id": client_id}
    sensor = {"num_samples": group.num_samples, "window_ms": group.window_ms, "cap_ms": getattr(group, "cap_ms", None), "first_seen_ms": 0}
    paced = {"is_paced": True} if isinstance(group, PacedGroup) else {}
    return {**about, **sensor}, {"rule": "client-id", "source": "file", "generation": 1, **paced}
