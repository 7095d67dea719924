"""A forwarded request that creates or deletes topics: what was charged for it, and how its response changes that."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping

from metering_format.event_kinds import CHARGED, OWED, REFUSED, SETTLED
from protocol.api_keys import ApiKey, ApiVersion
from protocol.messages.throttle_time import stamp, throttle_at
from protocol.messages.topic_changes import NO_ID, TopicChange, TopicChanges
from protocol.messages.topic_results import TopicResult, TopicResults, insert_in_steps, topic_results_in_steps
from protocol.steps import Pace, Steps
from proxy.enforcement.groups.enforced_groups import EnforcedMutationGroup
from proxy.enforcement.quota_scope import ClientQuota
from proxy.session.mutations.charge import answered_permits, permits_of
from proxy.session.mutations.known_sizes import KnownSizes
from proxy.session.mutations.notes import Balances, MutationNotes
from proxy.session.mutations.probes import ProbeResults
from proxy.session.parsed_response import ParsedResponse


class Wait:
    """The throttle time of the controller-mutation quota, from the time of the decision."""

    __slots__ = ("_since_ms", "_throttle_ms")

    def __init__(self, throttle_ms: int, since_ms: int) -> None:
        self._throttle_ms = throttle_ms
        self._since_ms = since_ms

    def left_ms(self, now_ms: int) -> int:
        """Return the remaining throttle time, never below 0. Source: Kafka `AbstractControllerMutationQuota.throttleTime`."""
        return max(0, self._throttle_ms - (now_ms - self._since_ms))


class PendingMutation:
    """One forwarded request.

    Args:
        sound: indexes of the topics that may cost something.
        charged: mutations charged before forwarding, by index; empty where the response decides (permissive versions, `observe`).
        refused: result entries of the removed topics, by index.
        wait: the throttle time of the first refused topic; None: the charge is still to come.
        strict: topics are checked one by one (also where the response decides).
    """

    __slots__ = (
        "_answers",
        "_api",
        "_changes",
        "_charged",
        "_client",
        "_known",
        "_notes",
        "_refused",
        "_sound",
        "_strict",
        "_wait",
        "group",
    )

    def __init__(
        self,
        api: ApiVersion,
        client: ClientQuota,
        group: EnforcedMutationGroup,
        changes: TopicChanges,
        sound: list[int],
        answers: ProbeResults,
        known: KnownSizes,
        *,
        charged: Mapping[int, int],
        refused: Mapping[int, bytes],
        wait: Wait | None,
        strict: bool,
        notes: MutationNotes,
    ) -> None:
        self._notes = notes
        self._api = api
        self._client = client
        self.group = group
        self._changes = changes
        self._sound = sound
        self._answers = answers
        self._known = known
        self._charged = charged
        self._refused = refused
        self._wait = wait
        self._strict = strict

    def parse(self, frame: bytes | memoryview, now_ms: int) -> Steps[ParsedResponse]:
        """Charge by the result of each topic, and insert the refused topics into the response.

        Raises:
            BadResponseError: the frame does not match its version.
            TooManyTopicsError: it has more elements than are checked.
        """
        results = yield from topic_results_in_steps(self._api, frame)
        throttle_ms = yield from self._settle(results, now_ms)
        return ParsedResponse((yield from self._joined(frame, results)), throttle_ms)

    def _settle(self, results: TopicResults, now_ms: int) -> Steps[int]:
        """Charge by the result of each topic; return the throttle time in ms."""
        pace = Pace()
        find = _Finder()
        yield from find.read(results, pace)
        due: list[int] = []
        for place in self._sound:
            if pace.due():
                now_ms = yield
            topic = self._changes.topics[place]
            result = None if place in self._refused else find.result_of(topic)
            if result is None:
                continue
            permits = self._permits(place, topic, now_ms)
            cost = answered_permits(self._api, result, permits)
            self._learn(topic, result, cost, now_ms)
            if self._wait is None:
                if cost:  # a topic that failed before its charge causes no throttle time, however empty the bucket is
                    due.append(cost)
            elif cost != permits:
                before = self._begin(cost - permits, now_ms, strict=False)
                self.group.record_unchecked(cost - permits, now_ms)
                self._note(SETTLED, cost - permits, before, 0, now_ms)
        return (yield from self._charge(due, pace, now_ms)) if self._wait is None else self._wait.left_ms(now_ms)

    def abandon(self, now_ms: int) -> int:
        """Charge as if every topic succeeds, because the connection has ended without the response.

        Returns:
            The throttle time in ms; 0 when it was charged before forwarding, or is only observed.
        """
        if self._wait is not None or self._strict:
            return 0
        due = sum(self._permits(place, self._changes.topics[place], now_ms) for place in self._sound if place not in self._refused)
        if not due:
            return 0
        before = self._begin(due, now_ms, strict=False)
        throttle_ms = self.group.record_permissive(due, now_ms)
        self._note(OWED, due, before, throttle_ms, now_ms)
        return throttle_ms

    def _joined(self, frame: bytes | memoryview, results: TopicResults) -> Steps[bytes | memoryview]:
        """Insert the refused topics into the response, in the order of the request."""
        if not self._refused:
            return frame
        pace = Pace()
        places: defaultdict[tuple[str | None, bytes], deque[int]] = defaultdict(deque)  # several where a topic is named twice
        for place, topic in enumerate(self._changes.topics):
            places[topic.name, topic.topic_id].append(place)
            if pace.due():
                yield
        inserted: list[tuple[int, bytes]] = []
        waiting = deque(sorted(self._refused))
        for at, entry in enumerate(results.entries):
            named = places.get((entry.name, NO_ID)) or places.get((None, entry.topic_id))
            place = named.popleft() if named else -1
            while waiting and waiting[0] < place:
                inserted.append((at, self._refused[waiting.popleft()]))
            if pace.due():
                yield
        inserted += [(len(results.entries), self._refused[place]) for place in waiting]
        return (yield from insert_in_steps(self._api, frame, results, inserted))

    def _permits(self, place: int, topic: TopicChange, now_ms: int) -> int:
        if self._wait is not None:
            return self._charged.get(place, 0)
        size = None if self._api.key == ApiKey.CREATE_TOPICS else self._answers.size(topic, now_ms)
        return permits_of(self._api, topic, size, self._answers.default_partitions)

    def _learn(self, topic: TopicChange, result: TopicResult, cost: int, now_ms: int) -> None:
        """Remember the new size of a topic until the brokers' Metadata shows it."""
        if result.error_code or self._changes.validate_only:
            return
        is_create = self._api.key == ApiKey.CREATE_TOPICS
        if is_create and topic.partitions == -1 and topic.assignments <= 0 and result.partitions > 0:
            self._answers.take_default(result.partitions)
        name = topic.name if topic.name is not None else result.name
        if name is not None:
            partitions = cost if is_create else topic.partitions  # of a deleted topic 0
            self._known.changed(name, result.topic_id, partitions, now_ms)

    def _charge(self, due: list[int], pace: Pace, now_ms: int) -> Steps[int]:
        if not due:
            return 0
        if not self._strict:
            before = self._begin(sum(due), now_ms, strict=False)
            throttle_ms = self.group.record_permissive(sum(due), now_ms)
            self._note(OWED, sum(due), before, throttle_ms, now_ms)
            return throttle_ms
        for cost in due:
            if pace.due():
                now_ms = yield
            before = self._begin(cost, now_ms, strict=True)
            is_exhausted = self.group.is_exhausted(now_ms)
            throttle_ms = self.group.record(cost, now_ms)
            self._note(REFUSED if is_exhausted else CHARGED, cost, before, throttle_ms, now_ms)
            if is_exhausted:
                return throttle_ms
        return 0

    def _begin(self, permits: int, now_ms: int, *, strict: bool) -> Balances:
        """Begin a step; return what it finds."""
        self.group.begin(permits, now_ms, strict=strict)
        return self._notes.found(self.group)

    def _note(self, kind: int, permits: int, before: Balances, throttle_ms: int, now_ms: int) -> None:
        self._notes.note(self._client, self.group, kind, permits, before, throttle_ms, self._api.index, now_ms)


class Refusal:
    """A request without a topic that may be forwarded: Sluice answers it in its turn."""

    __slots__ = ("_api", "_frame", "_wait", "client", "group")

    def __init__(self, api: ApiVersion, client: ClientQuota, group: EnforcedMutationGroup, frame: bytes, wait: Wait) -> None:
        self._api = api
        self.client = client
        self.group = group
        self._frame = frame
        self._wait = wait

    def left_ms(self, now_ms: int) -> int:
        """Return the remaining throttle time in ms."""
        return self._wait.left_ms(now_ms)

    def answer(self, announce_ms: int) -> tuple[bytes, int | None]:
        """Return the response with this throttle time, and the offset of the throttle time in it."""
        at = throttle_at(self._api, self._frame)
        if at is None:
            return self._frame, None
        stamped = bytearray(self._frame)
        stamp(stamped, at, announce_ms)
        return bytes(stamped), at


class _Finder:
    """Finds the result of a topic: responses need not be in the order of the request, and KRaft shuffles those to DeleteTopics."""

    __slots__ = ("_by_id", "_by_name")

    def __init__(self) -> None:
        self._by_name: dict[str, TopicResult] = {}
        self._by_id: dict[bytes, TopicResult] = {}

    def read(self, results: TopicResults, pace: Pace) -> Steps[None]:
        """Index the entries of a response."""
        for entry in results.entries:
            if entry.name is not None:
                self._by_name[entry.name] = entry
            if entry.topic_id != NO_ID:
                self._by_id[entry.topic_id] = entry
            if pace.due():
                yield

    def result_of(self, topic: TopicChange) -> TopicResult | None:
        """Return the entry of a topic, None when the response does not contain it."""
        return self._by_id.get(topic.topic_id) if topic.name is None else self._by_name.get(topic.name)
