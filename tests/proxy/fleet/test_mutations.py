"""Members of a fleet take controller mutations from one balance."""

from proxy.enforcement.groups.child_groups import enforced_bucket
from proxy.enforcement.groups.enforced_groups import EnforcedMutationGroup
from proxy.workers.asked_bucket import Asked, Buckets, asked_buckets
from proxy.workers.fleet_mutations import FleetMutations
from tests.support.fleet.fleet_members import KEYS, FleetMember, exchange
from tests.support.memory.bucket_questions import BucketQuestions

BOUND = 2.0
WINDOWS = {"num_samples": 11, "window_ms": 1_000}
BURST = 22.0
TAGS = {"user": "alice"}
START_MS = 1_000_000
STEP_MS = 700


class MutationMember(FleetMember):
    """A member with a bucket in its supervisor, and a group in its worker."""

    def __init__(self, name: str) -> None:
        super().__init__(name, 1, 1e9, START_MS)
        self.start_supervisor()
        make = asked_buckets(BucketQuestions(self.buckets), self.workers[0].usage)
        self.mutations: Asked = make(TAGS, BOUND, **WINDOWS, last_update_ms=START_MS - 22_000)

    def start_supervisor(self) -> None:
        """Start with new buckets."""
        self.buckets = Buckets(FleetMutations(self.segment, KEYS.digests))

    def take(self, permits: float, now_ms: int) -> int:
        """Take permits in strict mode; return the wait in ms, 0: they are taken."""
        return take(self.mutations, permits, now_ms)


def take(group: EnforcedMutationGroup, permits: float, now_ms: int) -> int:
    """Take permits in strict mode; return the wait in ms."""
    group.begin(permits, now_ms, strict=True)
    return group.record(permits, now_ms)


def test_members_take_from_one_balance() -> None:
    """Members in turn have the balance of one process, up to the refill of the time between two steps, and never more."""
    some = [MutationMember(name) for name in "abc"]
    alone = enforced_bucket(TAGS, BOUND, **WINDOWS, last_update_ms=START_MS - 22_000)
    waits = []
    for step in range(40):
        now_ms = START_MS + step * STEP_MS
        member = some[step % 3]
        member.mutations.begin(0.0, now_ms, strict=False)
        ours, theirs = member.mutations.tokens(now_ms), alone.tokens(now_ms)
        assert theirs - BOUND * STEP_MS / 1_000 - 1e-9 <= ours <= theirs + 1e-9
        waits.append(member.take(7.0, now_ms))
        if waits[-1] == 0:
            alone.record_unchecked(7.0, now_ms)
        exchange(some, now_ms + 50)
    assert waits.count(0) * 7.0 <= BURST + BOUND * 40 * STEP_MS / 1_000 + 7.0
    assert any(waits)


def test_a_member_that_joins_later_begins_with_what_is_used() -> None:
    """A member whose bucket is new charges it with what others used in the last windows, at its time."""
    one, late = MutationMember("a"), MutationMember("b")
    one.take(30.0, START_MS)
    exchange([one, late], START_MS + 50)
    assert late.take(1.0, START_MS + 1_000) > 0
    assert late.take(1.0, START_MS + 6_000) == 0


def test_a_new_supervisor_charges_nothing_twice() -> None:
    """A supervisor with restored buckets continues them, and one with new buckets charges the usage of the last windows once."""
    one, other = MutationMember("a"), MutationMember("b")
    one.take(10.0, START_MS)
    exchange([one, other], START_MS + 50)
    other.mutations.begin(0.0, START_MS + 100, strict=False)
    tokens = other.mutations.tokens(START_MS + 100)
    other.mutations.begin(0.0, START_MS + 100, strict=False)
    assert other.mutations.tokens(START_MS + 100) == tokens == BURST - 10.0 + 0.1 * BOUND  # refilled since then


def test_an_upgrade_charges_nothing_twice() -> None:
    """The buckets of a replaced supervisor contain what others used, so the new supervisor charges only what is used from then on."""
    one, other = MutationMember("a"), MutationMember("b")
    one.take(10.0, START_MS)
    exchange([one, other], START_MS + 50)
    other.mutations.begin(0.0, START_MS + 100, strict=False)
    states = other.buckets.states()
    other.start_supervisor()
    other.buckets.restore(states)
    other.mutations.questions = BucketQuestions(other.buckets)
    other.mutations.begin(0.0, START_MS + 100, strict=False)
    assert other.mutations.tokens(START_MS + 100) == BURST - 10.0 + 0.1 * BOUND
