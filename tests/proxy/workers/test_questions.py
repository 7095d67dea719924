"""Workers ask the supervisor questions and wait for the answers."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from proxy.enforcement.groups.child_groups import enforced_bucket
from proxy.enforcement.groups.enforced_groups import EnforcedMutationGroup
from proxy.shared_usage.shared_usage import SharedUsage
from proxy.workers.asked_bucket import Buckets, asked_buckets
from proxy.workers.asked_principals import RemotePrincipals
from proxy.workers.messaging.messages import AnyMessage, PrincipalConnectionEnded
from proxy.workers.messaging.passing import socket_pair
from proxy.workers.messaging.questions import AnyQuestion, BindBroker, BucketOf, EnterPrincipal, QuestionResponder, Questions, UseBuckets
from quota.entity import KafkaPrincipal
from tests.support.memory.shared_workers import new_segment

PORTS: msgspec.msgpack.Decoder[dict[str, int]] = msgspec.msgpack.Decoder(dict[str, int])
ALICE = KafkaPrincipal("User", "alice")


async def asked(answer: Callable[[AnyQuestion], Any], ask: Callable[[Questions], Any], times: int = 1) -> Any:
    """Ask from a thread, as a worker does from its process, and answer on the event loop."""
    supervisor, worker = socket_pair()
    answered = QuestionResponder(supervisor, answer)
    questions = Questions(worker)
    worker.settimeout(60.0)  # the supervisor may be slow on a busy machine
    try:
        return await asyncio.to_thread(lambda: [ask(questions) for _ in range(times)][-1])
    finally:
        answered.close()
        worker.close()


async def test_a_question_gets_its_answer() -> None:
    """A question reaches the supervisor unchanged, and the answer reaches the worker."""
    met: list[AnyQuestion] = []

    def answer(question: AnyQuestion) -> dict[str, int]:
        met.append(question)
        return {"edge": 9_093}

    question = BindBroker(0, 1, "kafka-1", 9_092)
    assert await asked(answer, lambda questions: questions.ask(question, PORTS)) == {"edge": 9_093}
    assert met == [question]


def test_a_supervisor_that_is_silent_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker whose question got no answer in time does not send the next one for a while."""
    supervisor, worker = socket_pair()
    monkeypatch.setattr("proxy.workers.messaging.questions.ANSWER_S", 0.01)
    questions = Questions(worker)
    question = BindBroker(0, 1, "kafka-1", 9_092)
    assert questions.ask(question, PORTS) is None
    assert questions.ask(question, PORTS) is None
    supervisor.setblocking(False)
    supervisor.recv(1_000)
    with pytest.raises(BlockingIOError):
        supervisor.recv(1_000)
    supervisor.close()
    worker.close()


WINDOWS: dict[str, int] = {"num_samples": 11, "window_ms": 1_000}
STEPS = [(0, 5.0, True), (1, 9.0, True), (0, 30.0, True), (1, 2.0, True), (0, -2.0, False), (1, 1.0, False), (0, 4.0, True)]
"""The worker, the permits, and whether they are taken only while no balance is below zero."""


def take(group: EnforcedMutationGroup, permits: float, now_ms: int, *, strict: bool) -> list[tuple[float, int] | int]:
    """Take permits as a session does; return the balances before, the wait, and the balances after, of a group and its parent."""
    group.begin(permits, now_ms, strict=strict)
    chain = [group] if group.parent is None else [group, group.parent]
    found = [one.balance for one in chain]
    wait_ms = group.record(permits, now_ms) if strict else group.record_permissive(permits, now_ms)
    return [*found, wait_ms, *(one.balance for one in chain)]


@pytest.mark.parametrize("has_parent", [False, True])
async def test_two_workers_take_from_one_bucket(has_parent: bool) -> None:
    """Two workers that ask for one bucket find the same balances and waits as a single process."""
    buckets = Buckets()

    def answer(question: AnyQuestion) -> Any:
        assert isinstance(question, UseBuckets)
        return buckets.use(question)

    def chain(make: Callable[..., EnforcedMutationGroup]) -> EnforcedMutationGroup:
        parent = make({"group": "team"}, 3.0, **WINDOWS, last_update_ms=-22_000) if has_parent else None
        return make({"user": "a"}, 2.0, parent, **WINDOWS, last_update_ms=-22_000)

    def play(questions: Questions) -> list[Any]:
        segment = new_segment(2)
        workers = [chain(asked_buckets(questions, SharedUsage(segment, number))) for number in range(2)]
        return [take(workers[number], permits, at * 700, strict=strict) for at, (number, permits, strict) in enumerate(STEPS)]

    one = chain(enforced_bucket)
    expected = [take(one, permits, at * 700, strict=strict) for at, (_, permits, strict) in enumerate(STEPS)]
    assert any(wait_ms > 0 for step in expected for wait_ms in step if isinstance(wait_ms, int))
    assert await asked(answer, play) == expected


def used(key: str, permits: float, now_ms: int, *, strict: bool = True) -> UseBuckets:
    """Return a step of a bucket that is refilled by 1 per second."""
    return UseBuckets([BucketOf((("user", key),), 1.0, 11, 1_000)], permits, now_ms, strict)


def test_a_worker_whose_clock_is_behind_finds_the_balance_of_its_own_time() -> None:
    """A question with an earlier time than the last one refills nothing and does not set the bucket's time back."""
    buckets = Buckets()
    buckets.use(used("a", 20.0, 5_000))
    assert buckets.use(used("a", 1.0, 4_990, strict=False)) == [(-9.0, 4_990)]
    assert buckets.use(used("a", 0.0, 6_000)) == [(-10.0, 5_000)]


async def test_a_supervisor_that_is_silent_leaves_the_last_balance() -> None:
    """Without an answer the worker takes the permits from the last balance it knows."""
    buckets = Buckets()
    silent: list[bool] = []

    def answer(question: AnyQuestion) -> Any:
        assert isinstance(question, UseBuckets)
        return [] if silent else buckets.use(question)

    def play(questions: Questions) -> list[Any]:
        group = asked_buckets(questions, SharedUsage(new_segment(1), 0))({"user": "a"}, 1.0, **WINDOWS)
        take(group, 5.0, 1_000, strict=True)
        silent.append(True)
        return take(group, 2.0, 1_500, strict=True)

    assert await asked(answer, play) == [(6.0, 1_000), 0, (4.5, 1_500)]


def test_a_full_bucket_is_forgotten_and_one_in_use_is_not() -> None:
    """Full buckets are removed and others are kept."""
    buckets = Buckets()
    buckets.use(used("a", 5.0, 1_000))
    buckets.use(used("b", 0.0, 1_000))
    buckets.expire(1_000)
    assert len(buckets) == 1
    buckets.expire(10_000)
    assert len(buckets) == 0


def test_a_new_supervisor_goes_on_with_the_buckets() -> None:
    """A new supervisor continues with the balances of the old one, also negative ones."""
    old, new = Buckets(), Buckets()
    for permits in (3.0, 40.0):
        old.use(used("a", permits, 1_000))
    new.restore(old.states())
    assert new.states() == old.states()
    assert new.use(used("a", 0.0, 2_000)) == old.use(used("a", 0.0, 2_000))


async def test_connections_of_a_principal_are_counted_by_the_supervisor() -> None:
    """With a limit the supervisor decides whether a connection may stay, and without one it is not asked."""
    sent: list[AnyMessage] = []
    asked_for: list[AnyQuestion] = []

    def answer(question: AnyQuestion) -> bool:
        asked_for.append(question)
        return len(asked_for) <= 2

    def play(questions: Questions) -> list[bool]:
        principals = RemotePrincipals(questions, sent.append)
        first = principals.enter(ALICE, only_observes=False)
        principals.max_connections = 1
        rest = [principals.enter(ALICE, only_observes=False) for _ in range(3)]
        principals.leave(ALICE)
        return [first, *rest]

    assert await asked(answer, play) == [True, True, True, False]
    assert asked_for == [EnterPrincipal("User", "alice", False)] * 3
    assert sent == [PrincipalConnectionEnded("User", "alice")]
