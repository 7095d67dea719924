"""What a verdict means for one connection: how long an answer waits, how long nothing is read."""

from __future__ import annotations

from proxy.session.attention import Attention
from proxy.session.enforcement import AGE_MAX_MS, IN_FLIGHT_MAX, INT32_MAX, Enforcement, Mode
from proxy.session.quota_scope import ClientQuota
from quota.group import QuotaGroup
from quota.mutation_group import MutationGroup

PRESSED_SHARE = 20
"""The last twentieth of a SASL session belongs to its renewal: nothing waits then ..."""
PRESSED_MS_MIN, PRESSED_MS_MAX = 200, 2_000
"""... but for no less and no more than so long ..."""
PRESSED_BYTES_MAX = 8 * 1024 * 1024
"""... and no more passes so than was sent before it: what a client's socket holds, or five requests of the usual largest size ..."""
PRESSED_IN_FLIGHT_MAX = 1_024
"""... of which so many may be in flight, since answers that are held release nobody's place."""
SHORT_SESSION_MS = 60_000
"""In sessions no longer than that little is let into a client's receive buffer from the beginning."""
HELD_BEYOND_MS_MAX = 3_000
"""So long an answer may be held beyond the end of a session: who may have no more requests in flight cannot send its renewal either ..."""
RENEWAL_MS_MAX = 7_000
"""... and so long the answer to a renewal's first message waits after that was read: librdkafka gives either 10 s, others more."""

Stepper = QuotaGroup | MutationGroup
"""Whose verdict it is: it hands out age steps."""


class Debt:
    """The throttle state of one connection. The rate belongs to the group, the debt to the connection.

    From a verdict above zero on nothing is read, in `delay` as in `mute`; until the next verdict of zero
    one request at a time goes on. Answers that were owed when the verdict fell never start a second wait.

    A mute that would outlast the SASL session of its client is a hold instead: who waits for answers sends no more than it may have in
    flight, and all of that has to pass before the renewal. What is left then is served while the client waits to log in again.
    """

    __slots__ = (
        "_attention",
        "_group",
        "_pressed",
        "_pressed_left_bytes",
        "_presses_at_ms",
        "_step_taken",
        "active",
        "client",
        "debt_until_ms",
        "hold_until_ms",
        "in_debt",
        "limits",
        "logging_in",
        "owed",
        "read_off_until_ms",
        "renewal_by_ms",
        "session_ends_ms",
        "session_is_short",
        "unanswered",
    )

    def __init__(self, attention: Attention) -> None:
        self._attention = attention
        self.client: ClientQuota | None = None  # whose verdict the last one above zero was
        self._group: Stepper | None = None  # whose verdict this is: the one that hands out steps
        self._step_taken = False  # this connection is the one that goes on in the present age step
        self._pressed_left_bytes = 0  # may still pass at the end of this session
        self._presses_at_ms = 0  # from here to the end of the session nothing waits
        self._pressed = False  # the present wait was cut short by the end of the session
        self.logging_in = False  # from a SaslHandshake to the verdict nothing waits
        self.renewal_by_ms = 0  # while `logging_in`: nothing in front of its first answer waits longer
        self.session_ends_ms = 0  # when the broker's SASL session ends; 0: never
        self.session_is_short = False
        self.active = False  # False: no verdict needs looking at, the hot path asks only this
        self.limits = False  # whether `in_flight_max` may be less than usual; stays until that says otherwise
        self.in_debt = False
        self.unanswered = False  # whether the last verdict fell on a request that has no answer
        self.owed = 0  # answers still to come of requests that were in flight when the verdict fell
        self.hold_until_ms = 0
        self.debt_until_ms = 0
        self.read_off_until_ms = 0

    def judge(self, client: ClientQuota, throttle_ms: int, group: Stepper, now_ms: int, received_ms: int, in_flight: int) -> int:
        """Take in the verdict on an answer whose head is here.

        Args:
            client: whose request it answers.
            throttle_ms: what the group says, 0 or less for "within quota".
            group: whose quota it is.
            now_ms: monotonic milliseconds.
            received_ms: when the request of this answer was read.
            in_flight: answers still owed behind this one.

        Returns:
            Milliseconds to announce in the answer, 0 to leave it untouched. How long the answer itself
            waits stands in `hold_until_ms` (in the past: not at all).
        """
        was_owed = self._answer_came()
        enforcement = client.enforcement
        if throttle_ms <= 0 or enforcement.mode is Mode.OBSERVE:
            self._within_quota(enforcement, now_ms)
            return 0
        throttle_ms = min(throttle_ms, INT32_MAX)
        self.unanswered = False
        if not was_owed:
            self.owed = in_flight
            if enforcement.mode is Mode.DELAY or (self.session_ends_ms and now_ms + throttle_ms > self._press_ms(now_ms)):
                age_ms = now_ms - received_ms
                hold_ms = max(0, min(throttle_ms, enforcement.delay_max_ms, AGE_MAX_MS - age_ms))
                self.hold_until_ms = now_ms + hold_ms
        self._extend(client, throttle_ms, group, now_ms)
        return throttle_ms - min(throttle_ms, max(0, self.hold_until_ms - now_ms))

    def judge_unanswered(self, client: ClientQuota, throttle_ms: int, group: QuotaGroup, now_ms: int, in_flight: int) -> None:
        """Take in the verdict on a request that has no answer (acks=0): the mute is all there is."""
        if throttle_ms <= 0 or client.enforcement.mode is Mode.OBSERVE:
            self._within_quota(client.enforcement, now_ms)
            return
        self.owed = in_flight
        self.unanswered = True
        self._extend(client, min(throttle_ms, INT32_MAX), group, now_ms)

    def judge_within(self, client: ClientQuota, now_ms: int) -> None:
        """Take in a verdict of zero on an answer whose head is here."""
        self._answer_came()
        self._within_quota(client.enforcement, now_ms)

    def judge_free(self) -> None:
        """Take in an answer to which no quota applies any more: it ends the debt."""
        self._answer_came()
        self._leave_debt()

    def pass_answer(self) -> None:
        """An answer that no byte quota judges went by."""
        self._answer_came()
        self.active = self.in_debt or self.owed > 0

    def is_of(self, group: QuotaGroup | None) -> bool:
        """Whether the last verdict above zero was that of `group`."""
        return group is not None and self._group is group

    def in_flight_max(self, now_ms: int) -> int:
        """How many requests may be in flight now: 0 while reading is off, 1 in debt, else the limit.

        At the end of an age step debt may be left. Then one request goes on, and only if no other connection
        of the group went on in this step: the step is for the client's sake, not a licence.
        """
        if self.presses(now_ms):
            return PRESSED_IN_FLIGHT_MAX
        if self.logging_in:
            return IN_FLIGHT_MAX
        if now_ms < self.read_off_until_ms:
            return 0
        if not self.in_debt:
            self.limits = False
            return IN_FLIGHT_MAX
        if now_ms < self.debt_until_ms and self._group is not None and not self._step_taken:
            if now_ms - self._group.last_step_ms < AGE_MAX_MS and not self._pressed:
                self._stop_reading(now_ms)
                return 0
            self._group.last_step_ms = now_ms
            self._step_taken = True
        return 1

    def took_step(self, group: QuotaGroup) -> bool:
        """Whether this connection is the one of `group` that goes on in the present age step."""
        return self._step_taken and self.in_debt and self._group is group

    def forgive(self) -> None:
        """Drop what is left: the client is not enforced any more, or the connection drains."""
        self.owed = 0
        self.hold_until_ms = self.debt_until_ms = self.read_off_until_ms = 0
        self._leave_debt()

    def _answer_came(self) -> bool:
        if self.owed == 0:
            return False
        self.owed -= 1
        return True

    def _extend(self, client: ClientQuota, throttle_ms: int, group: Stepper, now_ms: int) -> None:
        self.client = client
        self.active = self.in_debt = self.limits = self._attention.wanted = True
        self._step_taken = False
        self._group = group
        self.debt_until_ms = max(self.debt_until_ms, now_ms + throttle_ms)
        self._stop_reading(now_ms)

    def _within_quota(self, enforcement: Enforcement, now_ms: int) -> None:
        """A verdict of zero ends the debt, unless it fell on the one request of an age step.

        After 25 s of silence the window is empty, so that request is always within quota; the debt that is left is served all the
        same, or every step would let through what a pipelining client has ready.
        """
        if self._step_taken and now_ms < self.debt_until_ms and enforcement.mode is not Mode.OBSERVE:
            self._step_taken = False
            self._stop_reading(now_ms)
            return
        self._leave_debt()

    def session_begins(self, now_ms: int, ends_ms: int) -> None:
        """The client has logged in, or logged in again; debt that is left is served in the new session. `ends_ms` 0: it does not end."""
        self.session_ends_ms = ends_ms
        self.session_is_short = 0 < ends_ms <= now_ms + SHORT_SESSION_MS
        self._presses_at_ms = ends_ms - min(max((ends_ms - now_ms) // PRESSED_SHARE, PRESSED_MS_MIN), PRESSED_MS_MAX)
        self._pressed_left_bytes = PRESSED_BYTES_MAX
        self._pressed = self._step_taken = False

    def logs_in(self, read_ms: int) -> None:
        """A message of a login that was read then goes to the broker; nothing waits until the verdict."""
        if not self.logging_in:
            self.logging_in = True
            self.renewal_by_ms = read_ms + RENEWAL_MS_MAX

    def hold_renewal(self) -> None:
        """The broker expects a token, and its client sends nothing before it knows: debt is served now, while no session runs."""
        if self.session_ends_ms and self.in_debt:
            self.hold_until_ms = min(self.debt_until_ms, self.renewal_by_ms)

    def presses(self, now_ms: int) -> bool:
        """Whether the session is about to end, so that all that a client sent before its renewal has to reach the broker now.

        Clients renew when 85 to 95 percent of a session are over, behind whatever they have sent by then. What passes so is recorded
        like all else, and paid for in the next session.
        """
        return self.session_ends_ms > 0 and now_ms >= self._presses_at_ms and self._pressed_left_bytes > 0

    def held_until_ms(self, until_ms: int) -> int:
        """When an answer leaves at the latest that is held until then."""
        if not self.session_ends_ms:
            return until_ms
        return min(until_ms, self.renewal_by_ms if self.logging_in else self.session_ends_ms + HELD_BEYOND_MS_MAX)

    def presses_at_ms(self, now_ms: int) -> int:
        """When that begins for a client in debt; 0: never, or it has begun."""
        return self._presses_at_ms if self.in_debt and self.session_ends_ms and now_ms < self._presses_at_ms else 0

    def passed(self, size_bytes: int, now_ms: int) -> None:
        """So much went on while something was owed."""
        if self.session_ends_ms and now_ms >= self._presses_at_ms:
            self._pressed_left_bytes -= size_bytes

    def press_ms(self, since_ms: int) -> int:
        """Return until when something may wait that waits since then: for four fifths of what was left of the session."""
        return since_ms + max(0, self.session_ends_ms - since_ms) * 4 // 5

    def _press_ms(self, now_ms: int) -> int:
        """Until when nothing may be read, from now on."""
        return max(now_ms, min(self.press_ms(now_ms), self._presses_at_ms))

    def _stop_reading(self, now_ms: int) -> None:
        """Read nothing for a step; never until the session is over, for the broker closes a connection that speaks later."""
        self.read_off_until_ms = min(self.debt_until_ms, now_ms + AGE_MAX_MS)
        if self.session_ends_ms and self._pressed_left_bytes > 0:
            press_ms = self._press_ms(now_ms)
            self._pressed = press_ms < self.read_off_until_ms
            if self._pressed:
                self.read_off_until_ms = press_ms

    def _leave_debt(self) -> None:
        self.in_debt = False
        self.active = self.owed > 0
