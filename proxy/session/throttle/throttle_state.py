"""The effect of throttle times on one connection: how long a response is held, and how long the client is not read."""

from __future__ import annotations

from proxy.enforcement.groups.enforced_groups import EnforcedGroup, Stepper
from proxy.enforcement.mode import AGE_MAX_MS, IN_FLIGHT_MAX, INT32_MAX, Mode
from proxy.enforcement.quota_scope import ClientQuota
from proxy.session.attention import Attention
from proxy.session.throttle.departed_debts import leave_debt

PRESSED_SHARE = 20
"""The last twentieth of a SASL session belongs to its renewal: nothing waits then ..."""
PRESSED_MS_MIN, PRESSED_MS_MAX = 200, 2_000
"""... but for no less and no more than so long ..."""
PRESSED_BYTES_MAX = 8 * 1024 * 1024
"""... and no more passes so than was sent before it: what a client's socket holds, or five requests of the usual largest size ..."""
PRESSED_IN_FLIGHT_MAX = 1_024
"""... of which so many may be in flight, since answers that are held release no place."""
SHORT_SESSION_MS = 60_000
"""In sessions no longer than that little is let into a client's receive buffer from the beginning."""
HELD_BEYOND_MS_MAX = 3_000
"""So long an answer may be held beyond the end of a session: who may have no more requests in flight cannot send its renewal either ..."""
RENEWAL_MS_MAX = 7_000
"""... and so long the answer to a renewal's first message waits after that was read: librdkafka gives either 10 s, others more."""
STEP_S = AGE_MAX_MS / 1_000
"""An age step lets no more pass than the bound does in this time; a larger request waits until the debt is over."""


class ThrottleState:
    """The throttle state of one connection. The rate belongs to the group, the debt to the connection.

    From a verdict above zero on nothing is read, in `delay` as in `mute`, until the throttle time is over; then one request at a time
    goes on until a verdict of zero. Responses that were pending at that moment never start a second wait.

    A debt outlives its connection: what is left of it when the connection ends, or when its client has closed its side, is left to the
    group, and a new connection of the group serves it (`inherit`).

    A mute that would outlast the SASL session of its client is a hold instead: who waits for answers sends no more than it may have in
    flight, and all of that has to pass before the renewal. What is left then is served while the client waits to log in again.
    """

    __slots__ = (
        "_attention",
        "_group",
        "_left_ms",
        "_pressed",
        "_pressed_left_bytes",
        "_presses_at_ms",
        "_step_before_ms",
        "_step_taken",
        "_until_ms",
        "active",
        "client",
        "debt_until_ms",
        "departed",
        "hold_until_ms",
        "in_debt",
        "limits",
        "logging_in",
        "read_off_until_ms",
        "renewal_by_ms",
        "responses_pending",
        "session_ends_ms",
        "session_is_short",
        "unanswered",
    )

    def __init__(self, attention: Attention) -> None:
        self._attention = attention
        self.client: ClientQuota | None = None  # whose verdict the last one above zero was
        self._group: Stepper | None = None  # whose verdict lasts longest: it hands out steps
        self._until_ms: dict[Stepper, int] = {}  # when the debt to each group is over
        self._left_ms: dict[Stepper, int] = {}  # what was left to each group
        self._step_taken = False  # this connection is the one that goes on in the present age step
        self._step_before_ms = 0  # when the group's step before it was
        self.departed = False  # the client has closed its side
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
        self.responses_pending = 0  # answers still to come of requests that were in flight when the verdict fell
        self.hold_until_ms = 0
        self.debt_until_ms = 0
        self.read_off_until_ms = 0

    def judge(
        self,
        client: ClientQuota,
        throttle_ms: int,
        group: Stepper,
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
            outlives: whether the debt is left to the group when the connection ends; where a request can be refused nothing has to wait.

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
            if enforcement.mode is Mode.DELAY or (self.session_ends_ms and now_ms + throttle_ms > self._press_ms(now_ms)):
                age_ms = now_ms - received_ms
                hold_ms = max(0, min(throttle_ms, enforcement.delay_max_ms, AGE_MAX_MS - age_ms))
                self.hold_until_ms = now_ms + hold_ms
        self._owe(client, group, now_ms + throttle_ms, now_ms, outlives=outlives)
        return throttle_ms - min(throttle_ms, max(0, self.hold_until_ms - now_ms))

    def judge_unanswered(self, client: ClientQuota, throttle_ms: int, group: EnforcedGroup, now_ms: int, in_flight: int) -> None:
        """Take in the verdict on a request that has no answer (acks=0): the mute is all there is."""
        if throttle_ms <= 0 or client.enforcement.mode is Mode.OBSERVE:
            self._within_quota(now_ms)
            return
        self.responses_pending = in_flight
        self.unanswered = True
        self._owe(client, group, now_ms + min(throttle_ms, INT32_MAX), now_ms)

    def judge_gone(self, client: ClientQuota, throttle_ms: int, group: Stepper, now_ms: int) -> None:
        """Take in the verdict on a request whose answer is not awaited: the connection has ended, and leaves the debt to the group."""
        if throttle_ms > 0 and client.is_enforced:
            self._owe(client, group, now_ms + min(throttle_ms, INT32_MAX), now_ms)

    def judge_within(self, now_ms: int) -> None:
        """Take in a verdict of zero on an answer whose head is here, or that no quota applies to it any more."""
        self._answer_came()
        self._within_quota(now_ms)

    def pass_answer(self) -> None:
        """An answer that no byte quota judges went by."""
        self._answer_came()
        self.active = self.in_debt or self.responses_pending > 0

    def is_of(self, group: EnforcedGroup | None) -> bool:
        """Whether the verdict that lasts longest is that of `group` or of one that it is a part of."""
        return group is not None and self._group is not None and _is_part_of(group, self._group)

    def in_flight_max(self, now_ms: int) -> int:
        """How many requests may be in flight now: 0 while reading is off, 1 in debt, else the limit.

        At the end of an age step debt may be left. Then one request goes on, and only if no other connection
        of the group went on in this step: the step is for the client's sake, not a licence.
        """
        if self.session_expiring(now_ms):
            return PRESSED_IN_FLIGHT_MAX
        if self.logging_in:
            return IN_FLIGHT_MAX
        if now_ms < self.read_off_until_ms:
            return 0
        if not self.in_debt:
            if self.departed:
                return 1
            self.limits = False
            return IN_FLIGHT_MAX
        if now_ms < self.debt_until_ms and self._group is not None and not self._step_taken:
            if now_ms - self._group.last_step_ms < AGE_MAX_MS and not self._pressed:
                self._stop_reading(now_ms)
                return 0
            self._step_before_ms = self._group.last_step_ms
            self._group.last_step_ms = now_ms
            self._step_taken = True
        return 1

    def step_passes(self, group: Stepper | None, size_bytes: int, now_ms: int) -> bool:
        """Whether a request may go on although debt is left: in an age step no more than the bound lets pass in 25 s.

        A larger one gives the step back and waits until the debt is over.

        Args:
            group: that its produced bytes or its mutations count for; None: neither.
            size_bytes: of the request. How many mutations one asks for is not known yet, so none goes on in a step.
            now_ms: monotonic milliseconds.
        """
        debtor = self._group
        if not self._step_taken or debtor is None or group is None or now_ms >= self.debt_until_ms:
            return True
        if not _is_part_of(group, debtor):
            return True
        if isinstance(debtor, EnforcedGroup) and size_bytes <= STEP_S * debtor.bound:
            return True
        debtor.last_step_ms = self._step_before_ms
        self._step_taken = False
        self._stop_reading(now_ms, INT32_MAX)
        return False

    def took_step(self, group: EnforcedGroup) -> bool:
        """Whether this connection is the one of `group` that goes on in the present age step."""
        return self._step_taken and self.in_debt and self._group is not None and _is_part_of(group, self._group)

    def inherit(self, client: ClientQuota, group: Stepper, until_ms: int, now_ms: int) -> None:
        """Take over a debt that another connection left to `group`, before a request of `client` goes on."""
        self._owe(client, group, until_ms, now_ms)

    def depart(self, now_ms: int) -> None:
        """The client has closed its side: what it owes is left to its groups now, since it may be back at once.

        What it sent before goes on here, one request at a time, and waits as before.
        """
        self.departed = self.limits = True
        self.leave(now_ms)

    def leave(self, now_ms: int) -> None:
        """Leave to the groups the remaining delays; a delay that was left already is not left twice."""
        for group, until_ms in self._until_ms.items():
            before_ms = self._left_ms.get(group, 0)
            if until_ms > max(now_ms, before_ms):
                leave_debt(group, until_ms, now_ms, instead_of_ms=before_ms)
                self._left_ms[group] = until_ms

    def forgive(self) -> None:
        """Drop what is left: the client is not enforced any more, or the connection drains."""
        self.responses_pending = 0
        self.hold_until_ms = self.debt_until_ms = self.read_off_until_ms = 0
        self._leave_debt()

    def _answer_came(self) -> bool:
        if self.responses_pending == 0:
            return False
        self.responses_pending -= 1
        return True

    def _owe(self, client: ClientQuota, group: Stepper, until_ms: int, now_ms: int, *, outlives: bool = True) -> None:
        """Owe time to a group, or to the one of its parents whose bound is exceeded."""
        self.client = client
        group = group.limiting
        self.active = self.in_debt = self.limits = self._attention.needs_settle = True
        self._step_taken = False
        if outlives:
            self._until_ms[group] = max(self._until_ms.get(group, 0), until_ms)
        if until_ms >= self.debt_until_ms:
            self._group, self.debt_until_ms = group, until_ms
        self._stop_reading(now_ms)
        if self.departed:
            self.leave(now_ms)

    def _within_quota(self, now_ms: int) -> None:
        """A verdict of zero ends the debt when it is served. Source: Kafka, whose channel stays muted for the whole throttle time.

        Before that such a verdict says little: of another group, or on the one request of an age step, whose window is empty after 25 s
        of silence.
        """
        if now_ms < self.debt_until_ms and self.client is not None and self.client.is_enforced:
            if self._step_taken:
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

    def session_expiring(self, now_ms: int) -> bool:
        """Whether the session is about to end, so that all that a client sent before its renewal has to reach the broker now.

        Clients renew when 85 to 95 percent of a session are over, behind whatever they have sent by then. What passes so is recorded
        like all else, and paid for in the next session.
        """
        return self.session_ends_ms > 0 and now_ms >= self._presses_at_ms and self._pressed_left_bytes > 0

    @property
    def may_press(self) -> bool:
        """Whether something may still pass for the sake of a renewal."""
        return self._pressed_left_bytes > 0

    def held_until_ms(self, until_ms: int) -> int:
        """When an answer leaves at the latest that is held until then."""
        if not self.session_ends_ms:
            return until_ms
        return min(until_ms, self.renewal_by_ms if self.logging_in else self.session_ends_ms + HELD_BEYOND_MS_MAX)

    def expiring_at_ms(self, now_ms: int) -> int:
        """When that begins for a client in debt; 0: never, or it has begun."""
        return self._presses_at_ms if self.in_debt and self.session_ends_ms and now_ms < self._presses_at_ms else 0

    def passes_while_expiring(self, size_bytes: int) -> bool:
        """Whether a request may go on for the sake of the renewal behind it; one larger than all that may pass so goes when it is first."""
        if size_bytes > self._pressed_left_bytes < PRESSED_BYTES_MAX:
            self._pressed_left_bytes = 0
            return False
        self._pressed_left_bytes -= size_bytes
        return True

    def press_ms(self, since_ms: int) -> int:
        """Return until when something may wait that waits since then: for four fifths of what was left of the session."""
        return since_ms + max(0, self.session_ends_ms - since_ms) * 4 // 5

    def _press_ms(self, now_ms: int) -> int:
        """Until when nothing may be read, from now on."""
        return max(now_ms, min(self.press_ms(now_ms), self._presses_at_ms))

    def _stop_reading(self, now_ms: int, step_ms: int = AGE_MAX_MS) -> None:
        """Read nothing for a step; never until the session is over, for the broker closes a connection that speaks later."""
        self.read_off_until_ms = min(self.debt_until_ms, now_ms + step_ms)
        if self.session_ends_ms and self._pressed_left_bytes > 0:
            press_ms = self._press_ms(now_ms)
            self._pressed = press_ms < self.read_off_until_ms
            if self._pressed:
                self.read_off_until_ms = press_ms

    def _leave_debt(self) -> None:
        self.in_debt = False
        self.active = self.responses_pending > 0
        self._until_ms.clear()
        self._left_ms.clear()


def _is_part_of(group: Stepper, whole: Stepper) -> bool:
    member: Stepper | None = group
    while member is not None and member is not whole:
        member = member.parent
    return member is whole
