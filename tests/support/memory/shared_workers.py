"""Workers that share one segment inside one process, on a clock that the test moves."""

from typing import NamedTuple

from metering_format.event_kinds import SKIPPED
from proxy.enforcement.groups.enforced_groups import EnforcedGroup
from proxy.shared_usage.segment import Segment
from proxy.shared_usage.shared_groups import Shared
from proxy.shared_usage.shared_usage import SharedUsage
from quota.entity import ClientQuotaType
from quota.groups.group import QuotaGroup
from quota.request_time import PERCENT_PER_NANOSECOND

NUM_SAMPLES = 11
WINDOW_MS = 1_000
TAGS = {"user": "", "client-id": "etl"}


class Step(NamedTuple):
    """An event of a group: `kind` is record, unchecked, predict_throttle or bound; `answer` is its result."""

    kind: str
    amount: float
    time_ms: int
    answer: int = 0


class SharedWorker:
    """One life of a worker with one group.

    Attributes:
        steps: all events of its group in order, including usage of other workers.
        remote, skipped: totals of usage from each worker that was recorded, or too old to record.
        notes: totals of the notes of the fleet's hub, by source.
    """

    def __init__(
        self,
        segment: Segment,
        worker: int,
        bound: float,
        now_ms: int,
        *,
        quota_type: ClientQuotaType = ClientQuotaType.PRODUCE,
        scope_key: str = "1",
        fleet_key: bytes = b"",
    ) -> None:
        self.worker = worker
        self.bound = bound
        self.steps: list[Step] = []
        self.remote = [0.0] * (segment.workers + (segment.fleet is not None))
        self.skipped = [0.0] * (segment.workers + (segment.fleet is not None))
        self.notes: dict[int, int] = {}
        self.units = PERCENT_PER_NANOSECOND if quota_type is ClientQuotaType.REQUEST else 1.0
        self.usage = SharedUsage(segment, worker, self._note_remote, fleet_key=fleet_key)
        self.scope = self.usage.of_scope(scope_key)
        self.make = self.scope.maker(quota_type)
        self.group = self.make(TAGS, bound, num_samples=NUM_SAMPLES, window_ms=WINDOW_MS, created_ms=now_ms)

    def record(self, amount: float, now_ms: int) -> int:
        """Record with a check; return the throttle time in ms."""
        answer = self.group.record(amount, now_ms)
        self.steps.append(Step("record", amount, now_ms, answer))
        return answer

    def record_unchecked(self, amount: float, now_ms: int) -> None:
        """Record without a check."""
        self.group.record_unchecked(amount, now_ms)
        self.steps.append(Step("unchecked", amount, now_ms))

    def would_throttle_ms(self, extra: float, now_ms: int) -> int:
        """Return the throttle time that a record would have."""
        answer = self.group.would_throttle_ms(extra, now_ms)
        self.steps.append(Step("predict_throttle", extra, now_ms, answer))
        return answer

    def update_bound(self, bound: float) -> None:
        """Change the bound."""
        self.group.update_bound(bound)
        self.steps.append(Step("bound", bound, 0))

    def put_under(self, parent: EnforcedGroup | None) -> None:
        """Set the group's parent, or none, as its manager does."""
        above = {} if parent is None else {"parent": parent}
        made = self.make(TAGS, self.bound, **above, **self.group.like())
        self.group.copy_to(made)
        self.group = made

    def pull(self, now_ms: int) -> None:
        """Take in the usage of the others, as a request does."""
        self.publish(now_ms)
        self.group.certain_room(now_ms)

    def publish(self, now_ms: int) -> None:
        """Publish, as a worker's timer does."""
        self.usage.publish_all(now_ms)

    @property
    def published(self) -> int:
        """Return what this life has published of its own records."""
        assert isinstance(self.group, Shared)
        return self.group._sharing.published

    @property
    def known(self) -> float:
        """Return all usage that the group knows, including what is too old to count."""
        return self.group.recorded_total + sum(self.skipped)

    def _note_remote(self, group: EnforcedGroup, worker: int, amount: int, source_total: int, time_ms: int, kind: int) -> None:
        units = amount * self.units
        if kind == SKIPPED and worker >= len(self.skipped):  # a note of the fleet's hub
            self.notes[worker] = source_total
            return
        if kind == SKIPPED:
            self.skipped[worker] += units
            return
        self.remote[worker] += units
        self.steps.append(Step("unchecked", units, time_ms))


def new_segment(workers: int, rows_max: int = 16, *, has_fleet: bool = False) -> Segment:
    """Return a segment for the groups of these workers."""
    return Segment.create(workers, rows_max, NUM_SAMPLES, WINDOW_MS, has_fleet=has_fleet)


def replay(bound: float, steps: list[Step]) -> list[int]:
    """Return the results of a plain group for the same steps."""
    group = QuotaGroup(TAGS, bound, num_samples=NUM_SAMPLES, window_ms=WINDOW_MS)
    answers = []
    for kind, amount, time_ms, _ in steps:
        if kind == "record":
            answers.append(group.record(amount, time_ms))
            continue
        if kind == "unchecked":
            group.record_unchecked(amount, time_ms)
        if kind == "bound":
            group.update_bound(amount)
        answers.append(group.would_throttle_ms(amount, time_ms) if kind == "predict_throttle" else 0)
    return answers
