"""The effect of throttle times on one connection: how long a response is held, and how long the client is not read."""

from __future__ import annotations

from proxy.enforcement.groups.enforced_groups import EnforcedGroup, ThrottlingGroup
from proxy.enforcement.mode import AGE_MAX_MS, IN_FLIGHT_MAX, INT32_MAX, Mode
from proxy.enforcement.quota_scope import ClientQuota
from proxy.session.settle_flag import SettleFlag

EXPIRING_SHARE = 20
"""In the last twentieth of a SASL session no request waits, so that the client can renew it ..."""
EXPIRING_MS_MIN, EXPIRING_MS_MAX = 200, 2_000
"""... within these limits of that time ..."""
EXPIRING_BYTES_MAX = 8 * 1024 * 1024
"""... up to the bytes that a client sends before the renewal: the content of its socket, or five requests of the usual maximum size ..."""
EXPIRING_IN_FLIGHT_MAX = 1_024
"""... with at most this many requests in flight, since a held response keeps its place."""
SHORT_SESSION_MS = 60_000
"""In a session of at most this length the client's receive buffer is small from the beginning."""
HELD_BEYOND_MS_MAX = 3_000
"""A response is held at most this long after the end of a session: a client at its limit of requests in flight cannot renew ..."""
RENEWAL_MS_MAX = 7_000
"""... and the response to a renewal's first message at most this long after that was read: librdkafka allows 10 s for either."""
THROTTLE_ROUND_S = AGE_MAX_MS / 1_000
"""Seconds of one throttle round, which passes at most what the bound passes in this time. A larger request waits for the throttle's end."""


class ThrottleState:
    """The throttle state of one connection. The rate belongs to the group, the throttle to the connection.

    After a verdict above zero nothing is read until the throttle time is over, in `delay` as in `mute`. Then requests go on one at a
    time until a verdict of zero. Responses that were pending at the first verdict do not start a second wait.

    A throttle outlives its connection. What remains of it when the connection ends, or when its client has closed its side, is left to
    the group, and a new connection of the group serves it (`inherit`).

    A mute that would outlast the SASL session of its client becomes a hold. A client that waits for responses sends no more than its limit
    of requests in flight, and all of that has to pass before the renewal. The rest is served while the client waits for the next login.
    """

    __slots__ = (
        "_expiring_at_ms",
        "_expiring_left_bytes",
        "_group",
        "_is_cut_short",
        "_left_ms",
        "_previous_throttle_round_ms",
        "_settle_flag",
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

    def __init__(self, settle_flag: SettleFlag) -> None:
        self._settle_flag = settle_flag
        self.client: ClientQuota | None = None  # the client of the last verdict above zero
        self._group: ThrottlingGroup | None = None  # the group of the longest throttle, which gives out the throttle rounds
        self._until_ms: dict[ThrottlingGroup, int] = {}  # when the throttle of each group is over
        self._left_ms: dict[ThrottlingGroup, int] = {}  # the part that was left to each group
        self._took_throttle_round = False  # whether this connection took the group's current throttle round
        self._previous_throttle_round_ms = 0  # when the group gave out the one before it
        self.departed = False  # the client has closed its side
        self._expiring_left_bytes = 0  # bytes that may still pass while this session expires
        self._expiring_at_ms = 0  # from this time to the end of the session nothing waits
        self._is_cut_short = False  # the current wait was shortened by the end of the session
        self.logging_in = False  # from a SaslHandshake to the result nothing waits
        self.renewal_by_ms = 0  # while `logging_in`: when the response to its first message is sent at the latest
        self.session_ends_ms = 0  # when the broker's SASL session ends; 0: never
        self.session_is_short = False
        self.active = False  # False: no verdict has to be checked, which is all that the hot path tests
        self.limits = False  # whether `in_flight_max` may be less than usual; stays set until that returns the usual limit
        self.is_throttled = False
        self.unanswered = False  # whether the last verdict was on a request without a response
        self.responses_pending = 0  # responses still to come for requests that were in flight at the verdict
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
        """Apply the verdict on a response whose head has arrived.

        Args:
            client: the client of its request.
            throttle_ms: the group's throttle time, 0 or less for "within quota".
            group: the group that the request counts for.
            now_ms: monotonic milliseconds.
            received_ms: when the request of this response was read.
            in_flight: number of responses still pending behind this one.
            outlives: whether the throttle is left to the group when the connection ends; False where a request can be refused instead.

        Returns:
            Milliseconds to announce in the response, 0 to leave it unchanged. `hold_until_ms` is set to the time until which
            the response is held (in the past: it is not held).
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
        """Apply the verdict on a request that has no response (acks=0), which can only mute."""
        if throttle_ms <= 0 or client.enforcement.mode is Mode.OBSERVE:
            self._within_quota(now_ms)
            return
        self.responses_pending = in_flight
        self.unanswered = True
        self._throttle_until(client, group, now_ms + min(throttle_ms, INT32_MAX), now_ms)

    def judge_gone(self, client: ClientQuota, throttle_ms: int, group: ThrottlingGroup, now_ms: int) -> None:
        """Apply the verdict on a request of a connection that has ended; the throttle is left to the group."""
        if throttle_ms > 0 and client.is_enforced:
            self._throttle_until(client, group, now_ms + min(throttle_ms, INT32_MAX), now_ms)

    def judge_within(self, now_ms: int) -> None:
        """Apply a verdict of zero on a response whose head has arrived, also when no quota applies to it any more."""
        self._answer_came()
        self._within_quota(now_ms)

    def pass_answer(self) -> None:
        """Count a response without a byte quota."""
        self._answer_came()
        self.active = self.is_throttled or self.responses_pending > 0

    def is_of(self, group: EnforcedGroup | None) -> bool:
        """Whether the longest verdict is that of `group` or of one of its parents."""
        return group is not None and self._group is not None and _is_part_of(group, self._group)

    def in_flight_max(self, now_ms: int) -> int:
        """Return how many requests may be in flight now: 0 while reading is off, 1 while throttled, else the limit.

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
        """Whether a request may be forwarded before the throttle is over: in a throttle round, no more than the bound passes in 25 s.

        A larger request gives the round back and waits until the throttle is over.

        Args:
            group: the group of its produced bytes or its mutations, or None.
            size_bytes: its size. Its number of mutations is not known yet, so a request with mutations is not forwarded in a round.
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
        """Take over a throttle that another connection left to `group`, before a request of `client` is forwarded."""
        self._throttle_until(client, group, until_ms, now_ms)

    def depart(self, now_ms: int) -> None:
        """Leave the throttles to their groups, because the client has closed its side and may reconnect at once.

        The requests it sent before are still forwarded here, one at a time, and wait as before.
        """
        self.departed = self.limits = True
        self.leave(now_ms)

    def leave(self, now_ms: int) -> None:
        """Leave the remaining throttles to the groups, each of them once."""
        for group, until_ms in self._until_ms.items():
            before_ms = self._left_ms.get(group, 0)
            if until_ms > max(now_ms, before_ms):
                group.leave_throttle(until_ms, now_ms, instead_of_ms=before_ms)
                self._left_ms[group] = until_ms

    def cancel(self) -> None:
        """End the throttle, because the client is not enforced any more, or the connection drains."""
        self.responses_pending = 0
        self.hold_until_ms = self.throttled_until_ms = self.read_off_until_ms = 0
        self._end_throttle()

    def _answer_came(self) -> bool:
        if self.responses_pending == 0:
            return False
        self.responses_pending -= 1
        return True

    def _throttle_until(self, client: ClientQuota, group: ThrottlingGroup, until_ms: int, now_ms: int, *, outlives: bool = True) -> None:
        """Throttle the connection for a group, or for the parent whose bound is exceeded."""
        self.client = client
        group = group.limiting
        self.active = self.is_throttled = self.limits = self._settle_flag.needs_settle = True
        self._took_throttle_round = False
        if outlives:
            self._until_ms[group] = max(self._until_ms.get(group, 0), until_ms)
            group.note_throttled(until_ms, now_ms)
        if until_ms >= self.throttled_until_ms:
            self._group, self.throttled_until_ms = group, until_ms
        self._stop_reading(now_ms)
        if self.departed:
            self.leave(now_ms)

    def _within_quota(self, now_ms: int) -> None:
        """End the throttle after a verdict of zero, when it was served. Source: Kafka mutes a channel for the whole throttle time.

        Before, such a verdict has little meaning: it is that of another group, or of the one request of a throttle round, whose window
        is empty after 25 s of silence.
        """
        if now_ms < self.throttled_until_ms and self.client is not None and self.client.is_enforced:
            if self._took_throttle_round:
                self._took_throttle_round = False
                self._stop_reading(now_ms)
            return
        self._end_throttle()

    def session_begins(self, now_ms: int, ends_ms: int) -> None:
        """The client has logged in (again); the new session serves the rest of a throttle. `ends_ms` 0: it does not end."""
        self.session_ends_ms = ends_ms
        self.session_is_short = 0 < ends_ms <= now_ms + SHORT_SESSION_MS
        self._expiring_at_ms = ends_ms - min(max((ends_ms - now_ms) // EXPIRING_SHARE, EXPIRING_MS_MIN), EXPIRING_MS_MAX)
        self._expiring_left_bytes = EXPIRING_BYTES_MAX
        self._is_cut_short = self._took_throttle_round = False

    def logs_in(self, read_ms: int) -> None:
        """A message of a login, read at `read_ms`, is forwarded; nothing waits until the result."""
        if not self.logging_in:
            self.logging_in = True
            self.renewal_by_ms = read_ms + RENEWAL_MS_MAX

    def hold_renewal(self) -> None:
        """Hold the response to a renewal's first message, for which the client waits: the throttle is served while no session runs."""
        if self.session_ends_ms and self.is_throttled:
            self.hold_until_ms = min(self.throttled_until_ms, self.renewal_by_ms)

    def session_expiring(self, now_ms: int) -> bool:
        """Whether the session is about to end, so that all requests before the client's renewal have to reach the broker now.

        Clients renew when 85 to 95 percent of a session are over, after the requests they have sent by then. These are recorded
        like every request, and the throttle for them is served in the next session.
        """
        return self.session_ends_ms > 0 and now_ms >= self._expiring_at_ms and self._expiring_left_bytes > 0

    @property
    def may_pass_expiring(self) -> bool:
        """Whether more bytes may pass before a renewal."""
        return self._expiring_left_bytes > 0

    def held_until_ms(self, until_ms: int) -> int:
        """Return when a response held until `until_ms` is sent at the latest."""
        if not self.session_ends_ms:
            return until_ms
        return min(until_ms, self.renewal_by_ms if self.logging_in else self.session_ends_ms + HELD_BEYOND_MS_MAX)

    def expiring_at_ms(self, now_ms: int) -> int:
        """Return when the session begins to expire, for a throttled client; 0: never, or it has begun."""
        return self._expiring_at_ms if self.is_throttled and self.session_ends_ms and now_ms < self._expiring_at_ms else 0

    def passes_while_expiring(self, size_bytes: int) -> bool:
        """Whether a request may pass before a renewal; one above the limit of bytes passes when it is the first."""
        if size_bytes > self._expiring_left_bytes < EXPIRING_BYTES_MAX:
            self._expiring_left_bytes = 0
            return False
        self._expiring_left_bytes -= size_bytes
        return True

    def wait_max_ms(self, since_ms: int) -> int:
        """Return until when a request that waits since `since_ms` may wait: for four fifths of the remaining session."""
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
