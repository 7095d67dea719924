"""The effect of throttle times on one connection: how long a response is held, and how long the client is not read."""

from __future__ import annotations

from proxy.enforcement.groups.enforced_groups import EnforcedGroup, ThrottlingGroup
from proxy.enforcement.mode import AGE_MAX_MS, IN_FLIGHT_MAX, INT32_MAX, Mode
from proxy.enforcement.quota_scope import ClientQuota
from proxy.session.attention import Attention
from proxy.session.throttle.departed_throttles import leave_throttle

EXPIRING_SHARE = 20
"""In the last twentieth of a SASL session no request waits, so that the client can renew it ..."""
EXPIRING_MS_MIN, EXPIRING_MS_MAX = 200, 2_000
"""... within these limits of that time ..."""
EXPIRING_BYTES_MAX = 8 * 1024 * 1024
"""... up to as many bytes as a client sends ahead of the renewal: what its socket holds, or five requests of the usual largest size ..."""
EXPIRING_IN_FLIGHT_MAX = 1_024
"""... with at most so many requests in flight, since a held response keeps its place."""
SHORT_SESSION_MS = 60_000
"""In a session of at most this length the client's receive buffer is small from the beginning."""
HELD_BEYOND_MS_MAX = 3_000
"""A response is held at most so long beyond the end of a session: a client whose requests in flight are at their limit cannot renew ..."""
RENEWAL_MS_MAX = 7_000
"""... and the response to a renewal's first message at most so long after the read of that message: librdkafka gives either 10 s."""
THROTTLE_ROUND_S = AGE_MAX_MS / 1_000
"""Seconds of one throttle round, which passes at most what the bound passes in this time. A larger request waits for the throttle's end."""


class ThrottleState:
    """The throttle state of one connection. The rate belongs to the group, the throttle to the connection.

    After a verdict above zero nothing is read until the throttle time is over, in `delay` as in `mute`. Then requests go on one at a
    time until a verdict of zero. Responses that were pending at the first verdict do not start a second wait.

    A throttle outlives its connection. What remains of it when the connection ends, or when its client has closed its side, is left to
    the group, and a new connection of the group serves it (`inherit`).

    A mute that would outlast the SASL session of its client becomes a hold. A client that waits for responses sends no more than it may
    have in flight, and all of that has to pass before the renewal. The rest is served while the client waits to log in again.
    """

    __slots__ = (
        "_attention",
        "_expiring_at_ms",
        "_expiring_left_bytes",
        "_group",
        "_is_cut_short",
        "_left_ms",
        "_previous_throttle_round_ms",
        "_took_throttle_round",
        "_until_ms",
        "active",
        "client",
        "departed",
        "hold_until_ms",
        "is_throttled",
        "limits",
        "logging_in",
        "read_off_until_ms",
        "renewal_by_ms",
        "responses_pending",
        "session_ends_ms",
        "session_is_short",
        "throttled_until_ms",
        "unanswered",
    )

    def __init__(self, attention: Attention) -> None:
        self._attention = attention
        self.client: ClientQuota | None = None  # whose verdict the last one above zero was
        self._group: ThrottlingGroup | None = None  # the group of the longest throttle, which gives out the throttle rounds
        self._until_ms: dict[ThrottlingGroup, int] = {}  # when the throttle of each group is over
        self._left_ms: dict[ThrottlingGroup, int] = {}  # what was left to each group
        self._took_throttle_round = False  # whether this connection took the group's current throttle round
        self._previous_throttle_round_ms = 0  # when the group gave out the one before it
        self.departed = False  # the client has closed its side
        self._expiring_left_bytes = 0  # may still pass while this session expires
        self._expiring_at_ms = 0  # from this time to the end of the session nothing waits
        self._is_cut_short = False  # the present wait was cut short by the end of the session
        self.logging_in = False  # from a SaslHandshake to the verdict nothing waits
        self.renewal_by_ms = 0  # while `logging_in`: nothing in front of its first answer waits longer
        self.session_ends_ms = 0  # when the broker's SASL session ends; 0: never
        self.session_is_short = False
        self.active = False  # False: no verdict needs looking at, the hot path asks only this
        self.limits = False  # whether `in_flight_max` may be less than usual; stays until that says otherwise
        self.is_throttled = False
        self.unanswered = False  # whether the last verdict fell on a request that has no answer
        self.responses_pending = 0  # answers still to come of requests that were in flight when the verdict fell
        self.hold_until_ms = 0
        self.throttled_until_ms = 0
        self.read_off_until_ms = 0

    def judge(
        self,
        client: ClientQuota,
        throttle_ms: int,
        group: ThrottlingGroup,
        now_ms: int,
        received_ms: int,
        in_flight: int,
        *,
        outlives: bool = True,
    ) -> int:
        """Take in the verdict on an answer whose head is here.

        Args:
            client: whose request it answers.
            throttle_ms: what the group says, 0 or less for "within quota".
            group: whose quota it is.
            now_ms: monotonic milliseconds.
            received_ms: when the request of this answer was read.
            in_flight: responses still pending behind this one.
            outlives: whether the throttle is left to the group when the connection ends; False where a request can be refused instead.

        Returns:
            Milliseconds to announce in the answer, 0 to leave it untouched. How long the answer itself
            waits stands in `hold_until_ms` (in the past: not at all).
        """
        was_pending = self._answer_came()
        enforcement = client.enforcement
        if throttle_ms <= 0 or enforcement.mode is Mode.OBSERVE:
            self._within_quota(now_ms)
            return 0
        throttle_ms = min(throttle_ms, INT32_MAX)
        self.unanswered = False
        if not was_pending:
            self.responses_pending = in_flight
            if enforcement.mode is Mode.DELAY or (self.session_ends_ms and now_ms + throttle_ms > self._read_off_max_ms(now_ms)):
                age_ms = now_ms - received_ms
                hold_ms = max(0, min(throttle_ms, enforcement.delay_max_ms, AGE_MAX_MS - age_ms))
                self.hold_until_ms = now_ms + hold_ms
        self._throttle_until(client, group, now_ms + throttle_ms, now_ms, outlives=outlives)
        return throttle_ms - min(throttle_ms, max(0, self.hold_until_ms - now_ms))

    def judge_unanswered(self, client: ClientQuota, throttle_ms: int, group: EnforcedGroup, now_ms: int, in_flight: int) -> None:
        """Take in the verdict on a request that has no response (acks=0): there is only the mute."""
        if throttle_ms <= 0 or client.enforcement.mode is Mode.OBSERVE:
            self._within_quota(now_ms)
            return
        self.responses_pending = in_flight
        self.unanswered = True
        self._throttle_until(client, group, now_ms + min(throttle_ms, INT32_MAX), now_ms)

    def judge_gone(self, client: ClientQuota, throttle_ms: int, group: ThrottlingGroup, now_ms: int) -> None:
        """Take in the verdict on a request of a connection that has ended; the throttle is left to the group."""
        if throttle_ms > 0 and client.is_enforced:
            self._throttle_until(client, group, now_ms + min(throttle_ms, INT32_MAX), now_ms)

    def judge_within(self, now_ms: int) -> None:
        """Take in a verdict of zero on an answer whose head is here, or that no quota applies to it any more."""
        self._answer_came()
        self._within_quota(now_ms)

    def pass_answer(self) -> None:
        """Count a response that no byte quota judges."""
        self._answer_came()
        self.active = self.is_throttled or self.responses_pending > 0

    def is_of(self, group: EnforcedGroup | None) -> bool:
        """Whether the verdict that lasts longest is that of `group` or of one that it is a part of."""
        return group is not None and self._group is not None and _is_part_of(group, self._group)

    def in_flight_max(self, now_ms: int) -> int:
        """How many requests may be in flight now: 0 while reading is off, 1 while throttled, else the limit.

        A throttle round lasts 25 s. When it ends before the throttle does, one request goes on, and only if no other connection of
        the group has gone on in this round. The round keeps the client from giving up; it does not raise its rate.
        """
        if self.session_expiring(now_ms):
            return EXPIRING_IN_FLIGHT_MAX
        if self.logging_in:
            return IN_FLIGHT_MAX
        if now_ms < self.read_off_until_ms:
            return 0
        if not self.is_throttled:
            if self.departed:
                return 1
            self.limits = False
            return IN_FLIGHT_MAX
        if now_ms < self.throttled_until_ms and self._group is not None and not self._took_throttle_round:
            if now_ms - self._group.last_throttle_round_ms < AGE_MAX_MS and not self._is_cut_short:
                self._stop_reading(now_ms)
                return 0
            self._previous_throttle_round_ms = self._group.last_throttle_round_ms
            self._group.last_throttle_round_ms = now_ms
            self._took_throttle_round = True
        return 1

    def fits_throttle_round(self, group: ThrottlingGroup | None, size_bytes: int, now_ms: int) -> bool:
        """Whether a request may go on before the throttle is over: in a throttle round no more than the bound lets pass in 25 s.

        A larger request gives the round back and waits until the throttle is over.

        Args:
            group: that its produced bytes or its mutations count for; None: neither.
            size_bytes: of the request. How many mutations one asks for is not known yet, so none goes on in a round.
            now_ms: monotonic milliseconds.
        """
        limiting = self._group
        if not self._took_throttle_round or limiting is None or group is None or now_ms >= self.throttled_until_ms:
            return True
        if not _is_part_of(group, limiting):
            return True
        if isinstance(limiting, EnforcedGroup) and size_bytes <= THROTTLE_ROUND_S * limiting.bound:
            return True
        limiting.last_throttle_round_ms = self._previous_throttle_round_ms
        self._took_throttle_round = False
        self._stop_reading(now_ms, INT32_MAX)
        return False

    def has_throttle_round(self, group: EnforcedGroup) -> bool:
        """Whether this connection has the current throttle round of `group`."""
        return self._took_throttle_round and self.is_throttled and self._group is not None and _is_part_of(group, self._group)

    def inherit(self, client: ClientQuota, group: ThrottlingGroup, until_ms: int, now_ms: int) -> None:
        """Take over a throttle that another connection left to `group`, before a request of `client` goes on."""
        self._throttle_until(client, group, until_ms, now_ms)

    def depart(self, now_ms: int) -> None:
        """The client has closed its side. Its throttles are left to its groups now, since the client may connect again at once.

        What it sent before goes on here, one request at a time, and waits as before.
        """
        self.departed = self.limits = True
        self.leave(now_ms)

    def leave(self, now_ms: int) -> None:
        """Leave the remaining throttles to the groups, each of them once."""
        for group, until_ms in self._until_ms.items():
            before_ms = self._left_ms.get(group, 0)
            if until_ms > max(now_ms, before_ms):
                leave_throttle(group, until_ms, now_ms, instead_of_ms=before_ms)
                self._left_ms[group] = until_ms

    def forgive(self) -> None:
        """End the throttle: the client is not enforced any more, or the connection drains."""
        self.responses_pending = 0
        self.hold_until_ms = self.throttled_until_ms = self.read_off_until_ms = 0
        self._end_throttle()

    def _answer_came(self) -> bool:
        if self.responses_pending == 0:
            return False
        self.responses_pending -= 1
        return True

    def _throttle_until(self, client: ClientQuota, group: ThrottlingGroup, until_ms: int, now_ms: int, *, outlives: bool = True) -> None:
        """Throttle the connection for a group, or for the one of its parents whose bound is exceeded."""
        self.client = client
        group = group.limiting
        self.active = self.is_throttled = self.limits = self._attention.needs_settle = True
        self._took_throttle_round = False
        if outlives:
            self._until_ms[group] = max(self._until_ms.get(group, 0), until_ms)
        if until_ms >= self.throttled_until_ms:
            self._group, self.throttled_until_ms = group, until_ms
        self._stop_reading(now_ms)
        if self.departed:
            self.leave(now_ms)

    def _within_quota(self, now_ms: int) -> None:
        """A verdict of zero ends the throttle when it is served. Source: Kafka, whose channel stays muted for the whole throttle time.

        Before that such a verdict says little: of another group, or on the one request of a throttle round, whose window is empty after
        25 s of silence.
        """
        if now_ms < self.throttled_until_ms and self.client is not None and self.client.is_enforced:
            if self._took_throttle_round:
                self._took_throttle_round = False
                self._stop_reading(now_ms)
            return
        self._end_throttle()

    def session_begins(self, now_ms: int, ends_ms: int) -> None:
        """The client has logged in, or logged in again; the new session serves the rest of a throttle. `ends_ms` 0: it does not end."""
        self.session_ends_ms = ends_ms
        self.session_is_short = 0 < ends_ms <= now_ms + SHORT_SESSION_MS
        self._expiring_at_ms = ends_ms - min(max((ends_ms - now_ms) // EXPIRING_SHARE, EXPIRING_MS_MIN), EXPIRING_MS_MAX)
        self._expiring_left_bytes = EXPIRING_BYTES_MAX
        self._is_cut_short = self._took_throttle_round = False

    def logs_in(self, read_ms: int) -> None:
        """A message of a login, read at `read_ms`, goes to the broker; nothing waits until the verdict."""
        if not self.logging_in:
            self.logging_in = True
            self.renewal_by_ms = read_ms + RENEWAL_MS_MAX

    def hold_renewal(self) -> None:
        """The broker expects a token, and the client waits for this response: the throttle is served now, while no session runs."""
        if self.session_ends_ms and self.is_throttled:
            self.hold_until_ms = min(self.throttled_until_ms, self.renewal_by_ms)

    def session_expiring(self, now_ms: int) -> bool:
        """Whether the session is about to end, so that everything in front of the client's renewal has to reach the broker now.

        Clients renew when 85 to 95 percent of a session are over, behind whatever they have sent by then. What passes so is recorded
        like every request, and the throttle for it is served in the next session.
        """
        return self.session_ends_ms > 0 and now_ms >= self._expiring_at_ms and self._expiring_left_bytes > 0

    @property
    def may_pass_expiring(self) -> bool:
        """Whether more may pass in front of a renewal."""
        return self._expiring_left_bytes > 0

    def held_until_ms(self, until_ms: int) -> int:
        """Return when a response that is held until `until_ms` leaves at the latest."""
        if not self.session_ends_ms:
            return until_ms
        return min(until_ms, self.renewal_by_ms if self.logging_in else self.session_ends_ms + HELD_BEYOND_MS_MAX)

    def expiring_at_ms(self, now_ms: int) -> int:
        """Return when the session begins to expire, for a throttled client; 0: never, or it has begun."""
        return self._expiring_at_ms if self.is_throttled and self.session_ends_ms and now_ms < self._expiring_at_ms else 0

    def passes_while_expiring(self, size_bytes: int) -> bool:
        """Whether a request may go on in front of a renewal; one above the limit of bytes goes on when it is the first."""
        if size_bytes > self._expiring_left_bytes < EXPIRING_BYTES_MAX:
            self._expiring_left_bytes = 0
            return False
        self._expiring_left_bytes -= size_bytes
        return True

    def wait_max_ms(self, since_ms: int) -> int:
        """Return until when a request that waits since `since_ms` may wait: for four fifths of what was left of the session."""
        return since_ms + max(0, self.session_ends_ms - since_ms) * 4 // 5

    def _read_off_max_ms(self, now_ms: int) -> int:
        """Return until when reading may be off, from now on."""
        return max(now_ms, min(self.wait_max_ms(now_ms), self._expiring_at_ms))

    def _stop_reading(self, now_ms: int, length_ms: int = AGE_MAX_MS) -> None:
        """Read nothing for one throttle round, but read before the session is over: the broker closes a connection that sends later."""
        self.read_off_until_ms = min(self.throttled_until_ms, now_ms + length_ms)
        if self.session_ends_ms and self._expiring_left_bytes > 0:
            wait_max_ms = self._read_off_max_ms(now_ms)
            self._is_cut_short = wait_max_ms < self.read_off_until_ms
            if self._is_cut_short:
                self.read_off_until_ms = wait_max_ms

    def _end_throttle(self) -> None:
        self.is_throttled = False
        self.active = self.responses_pending > 0
        self._until_ms.clear()
        self._left_ms.clear()


def _is_part_of(group: ThrottlingGroup, whole: ThrottlingGroup) -> bool:
    member: ThrottlingGroup | None = group
    while member is not None and member is not whole:
        member = member.parent
    return member is whole
