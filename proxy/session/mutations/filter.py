"""Checks a request that creates or deletes topics against its quota, topic by topic, before it is forwarded, as KRaft's controller does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from metering_format.event_kinds import CHARGED, REFUSED
from protocol.api_keys import ApiKey
from protocol.errors import BadRequestError
from protocol.limits import LENGTH_BYTES
from protocol.messages.topic_changes import NO_ID, TopicChange, TopicChanges, cut_request, topic_changes_in_steps
from protocol.messages.topic_results import result_entry, results_answer
from protocol.primitives import Buffer
from protocol.request_head import RequestHead, read_request_head
from protocol.steps import Pace, Steps
from proxy.enforcement.groups.enforced_groups import EnforcedMutationGroup
from proxy.enforcement.mode import INT32_MAX
from proxy.handler_time import work_of
from proxy.session.mutations.charge import is_strict, permits_of, sound_places
from proxy.session.mutations.known_sizes import KnownSizes
from proxy.session.mutations.notes import MutationNotes
from proxy.session.mutations.pending import PendingMutation, Refusal, Wait
from proxy.session.mutations.probes import PROBE_VERSION, Probe, ProbeResults, ask_default, ask_sizes
from proxy.session.request_context import MUTATION, PASS, WHOLE, RequestContext
from quota.entity import UNLIMITED

THROTTLING_QUOTA_EXCEEDED = 89


class MutationDecision(NamedTuple):
    """What to do with one request.

    Attributes:
        questions: requests of Sluice's own to send to the broker first.
        waits: whether the request waits for their responses; all attributes below are then empty.
        frame: the request to forward; None: the request as received.
        head: the context for its response.
        refusal: the response in its place.
    """

    questions: tuple[Probe, ...] = ()
    waits: bool = False
    frame: bytes | None = None
    head: RequestContext | None = None
    refusal: Refusal | None = None


class ControllerMutationFilter:
    """Checks the requests of one connection that create or delete topics.

    Args:
        broker_max: returns the newest version of an API that the broker certainly has, -1 when unknown.
    """

    __slots__ = ("_broker_max", "_known", "_notes", "_waiting")

    def __init__(self, known: KnownSizes, broker_max: Callable[[int], int], notes: MutationNotes) -> None:
        self._notes = notes
        self._known = known
        self._broker_max = broker_max
        self._waiting: _Asked | None = None  # the parsed request that waits for the response to a probe

    def judges(self, head: RequestContext, now_ms: int) -> bool:
        """Whether a quota applies to this client, so that its request has to be buffered whole."""
        group = head.client.mutation(now_ms)
        if group is not None and group.bound < UNLIMITED:
            return True
        self._waiting = None  # a quota that was removed while its request waited
        return False

    def waits_for_its_turn(self, head: RequestContext) -> bool:
        """Whether the request may have to wait here; then no other request is in flight meanwhile."""
        return not head.client.enforcement.only_observes and is_strict(head.api)

    def judge(self, head: RequestContext, frame: Buffer, *, may_wait: bool) -> Steps[MutationDecision]:
        """Check the whole request `frame`, or return the probes that are needed first; in steps, doing nothing before the first pause.

        Args:
            may_wait: False: decide now with what is known, because the client is gone or Sluice drains.

        Raises:
            BadRequestError: the frame does not match its version.
            TooManyTopicsError: it has more elements than are checked.
        """
        now_ms = yield
        group = head.client.mutation(now_ms)
        if group is None:  # a quota that was removed just now
            return MutationDecision(head=plain_head(head))
        asked, self._waiting = self._waiting, None
        if asked is None:
            asked = yield from self._read(head, group, frame)
        asked.head, asked.group, asked.frame = head, group, frame
        if not self.waits_for_its_turn(head):
            question = (yield from self._question(asked, now_ms)) if may_wait else None
            return MutationDecision((question,) if question else (), head=self._ticketed(asked, {}, {}, None))
        question = None
        if may_wait:
            question = yield from self._question(asked, now_ms)
            if question is None:
                question = yield from self._question_who_exists(asked, now_ms)
        if question is not None:
            self._waiting = asked
            return MutationDecision((question,), waits=True)
        return (yield from self._decide(asked, now_ms))

    def _read(self, head: RequestContext, group: EnforcedMutationGroup, frame: Buffer) -> Steps[_Asked]:
        request_head = read_request_head(frame, 0, len(frame) - LENGTH_BYTES)
        if request_head is None:
            raise BadRequestError("the request ends inside its header")
        changes = yield from topic_changes_in_steps(head.api, frame, request_head.body_at)
        pace = Pace()
        sound = yield from sound_places(head.api, changes, pace)
        return _Asked(head, group, request_head, frame, changes, sound, ProbeResults(self._known), pace)

    def _question(self, asked: _Asked, now_ms: int) -> Steps[Probe | None]:
        """Return the probe that is needed before the mutations can be counted; None: none."""
        answers, api, wanted = asked.answers, asked.head.api, []
        is_create = api.key == ApiKey.CREATE_TOPICS
        if is_create and (answers.knows_default or answers.asked_default):
            return None
        if is_create and max(api.version, self._broker_max(ApiKey.CREATE_TOPICS)) < PROBE_VERSION:
            return None
        if not is_create and answers.asked_sizes:
            return None
        for topic in asked.topics():
            if is_create:
                if topic.name is not None and topic.partitions == -1 and topic.assignments <= 0:
                    wanted.append(topic)
            elif not answers.is_recent(topic, now_ms):
                wanted.append(topic)
            if asked.pace.due():
                now_ms = yield
        if is_create:
            names = [topic.name for topic in wanted if topic.name is not None]
            return (yield from ask_default(names, asked.request_head.client_id_bytes, answers, asked.pace)) if names else None
        return (yield from self._ask(asked, wanted))

    def _question_who_exists(self, asked: _Asked, now_ms: int) -> Steps[Probe | None]:
        """Return the probe that finds which topics to create exist already. These fail and cost nothing, so they must not be refused."""
        if asked.head.api.key != ApiKey.CREATE_TOPICS or asked.answers.asked_sizes:
            return None
        permits = 0
        for topic in asked.topics(but_last=True):  # so the check of the last one finds a balance of 0 or more
            permits += self._permits(asked, topic, now_ms)
            if asked.pace.due():
                now_ms = yield
        if asked.group.affordable(now_ms) >= permits:
            return None
        return (yield from self._ask(asked, list(asked.topics())))

    def _ask(self, asked: _Asked, topics: list[TopicChange]) -> Steps[Probe | None]:
        if not topics:
            return None
        api = asked.head.api
        want_ids = api.key == ApiKey.DELETE_TOPICS and api.version >= 6
        client_id, metadata_max = asked.request_head.client_id_bytes, self._broker_max(ApiKey.METADATA)
        return (yield from ask_sizes(topics, client_id, asked.answers, metadata_max, asked.pace, want_ids=want_ids))

    def _permits(self, asked: _Asked, topic: TopicChange, now_ms: int) -> int:
        return permits_of(asked.head.api, topic, asked.answers.size(topic, now_ms), asked.answers.default_partitions)

    def _decide(self, asked: _Asked, now_ms: int) -> Steps[MutationDecision]:
        """Charge topic by topic, in the order of the request; from the first one with a balance below zero on, refuse."""
        group, api, changes = asked.group, asked.head.api, asked.changes
        charged: dict[int, int] = {}
        refused: dict[int, bytes] = {}
        wait = Wait(0, now_ms)
        for place in asked.sound:
            if asked.pace.due():
                now_ms = yield
            topic = changes.topics[place]
            permits = self._permits(asked, topic, now_ms)
            if api.key != ApiKey.CREATE_TOPICS and asked.answers.is_unknown(topic, now_ms):
                permits = 1  # the client can no longer be delayed: a disconnect or a drain must not bypass an empty bucket
            if permits == 0:
                continue
            if not refused:
                group.begin(permits, now_ms, strict=True)
                before = self._notes.found(group)
                if not group.is_exhausted(now_ms):
                    group.record(permits, now_ms)
                    self._notes.note(asked.head.client, group, CHARGED, permits, before, 0, api.index, now_ms)
                    charged[place] = permits
                    continue
                group.record(permits, now_ms)  # counts nothing and keeps the verdict
                throttle_ms = group.wait_ms(now_ms)
                wait = Wait(min(throttle_ms, INT32_MAX), now_ms)
                self._notes.note(asked.head.client, group, REFUSED, permits, before, wait.left_ms(now_ms), api.index, now_ms)
            size = asked.answers.size(topic, now_ms)
            refused[place] = _refused_entry(asked, topic, size.name if size else None, size.topic_id if size else NO_ID)
        if refused and len(refused) == len(changes.topics):
            entries = [refused[place] for place in sorted(refused)]
            answer = results_answer(api, asked.request_head.correlation_id, entries)
            return MutationDecision(refusal=Refusal(api, asked.head.client, group, answer, wait))
        frame = None
        if refused:
            frame = cut_request(api, asked.frame, changes, {place for place in range(len(changes.topics)) if place not in refused})
        return MutationDecision(frame=frame, head=self._ticketed(asked, charged, refused, wait))

    def _ticketed(self, asked: _Asked, charged: Mapping[int, int], refused: Mapping[int, bytes], wait: Wait | None) -> RequestContext:
        of = asked.head
        head = RequestContext(of.api, of.client, MUTATION, WHOLE, of.prefix, of.work, of.cell, of.broker)
        head.ticket = PendingMutation(
            asked.head.api,
            asked.head.client,
            asked.group,
            asked.changes,
            asked.sound,
            asked.answers,
            self._known,
            charged=charged,
            refused=refused,
            wait=wait,
            strict=is_strict(asked.head.api),
            notes=self._notes,
        )
        return head


class _Asked:
    """One parsed request."""

    __slots__ = ("answers", "changes", "frame", "group", "head", "pace", "request_head", "sound")

    def __init__(
        self,
        head: RequestContext,
        group: EnforcedMutationGroup,
        request_head: RequestHead,
        frame: Buffer,
        changes: TopicChanges,
        sound: list[int],
        answers: ProbeResults,
        pace: Pace,
    ) -> None:
        self.head = head
        self.group = group
        self.request_head = request_head
        self.frame = frame
        self.changes = changes
        self.sound = sound
        self.answers = answers
        self.pace = pace

    def topics(self, *, but_last: bool = False) -> Iterator[TopicChange]:
        """Yield the topics that may cost something."""
        topics = self.changes.topics
        return (topics[place] for place in (self.sound[:-1] if but_last else self.sound))


def plain_head(head: RequestContext) -> RequestContext:
    """Return the context of a request that no quota limits."""
    return RequestContext(head.api, head.client, PASS, head.rewrite, head.prefix, head.work, head.cell, head.broker)


def question_head(question: Probe, head: RequestContext) -> RequestContext:
    """Return the context for the response to a probe."""
    asked = RequestContext(question.api, head.client, PASS, WHOLE, b"", work_of(question.api.key), broker=head.broker)
    asked.ticket = question
    asked.is_question = True
    return asked


def _refused_entry(asked: _Asked, topic: TopicChange, name: str | None, topic_id: bytes) -> bytes:
    api = asked.head.api
    shown_name = topic.name if topic.name is not None else name
    shown_id = topic_id if api.key == ApiKey.DELETE_TOPICS else NO_ID
    if topic.topic_id != NO_ID:
        shown_id = topic.topic_id
    return result_entry(api, shown_name, shown_id, THROTTLING_QUOTA_EXCEEDED)
