"""Questions of workers that wait for their answers."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from proxy.workers.asked_bucket import AskedBucket, Buckets
from proxy.workers.asked_principals import AskedPrincipals
from proxy.workers.messaging.messages import AnyMessage, PrincipalLeft
from proxy.workers.messaging.passing import socket_pair
from proxy.workers.messaging.questions import AnsweredQuestions, AnyQuestion, BindBroker, EnterPrincipal, Questions, UseBucket
from quota.entity import KafkaPrincipal
from quota.sensor import TokenBucket

PORTS: msgspec.msgpack.Decoder[dict[str, int]] = msgspec.msgpack.Decoder(dict[str, int])
ALICE = KafkaPrincipal("User", "alice")


async def asked(answer: Callable[[AnyQuestion], Any], ask: Callable[[Questions], Any], times: int = 1) -> Any:
    """Ask in a thread, as a worker does in a process; answer on the loop."""
    supervisor, worker = socket_pair()
    answered = AnsweredQuestions(supervisor, answer)
    questions = Questions(worker)
    try:
        return await asyncio.to_thread(lambda: [ask(questions) for _ in range(times)][-1])
    finally:
        answered.close()
        worker.close()


async def test_a_question_gets_its_answer() -> None:
    """The question arrives as it was asked, and the answer as it was given."""
    met: list[AnyQuestion] = []

    def answer(question: AnyQuestion) -> dict[str, int]:
        met.append(question)
        return {"edge": 9_093}

    question = BindBroker(0, 1, "kafka-1", 9_092)
    assert await asked(answer, lambda questions: questions.ask(question, PORTS)) == {"edge": 9_093}
    assert met == [question]


def test_a_supervisor_that_is_silent_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker goes on without it, and does not wait again for a while; a late answer is nobody's."""
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


async def test_two_workers_take_from_one_bucket() -> None:
    """Whoever takes permits, the balance is that of one bucket of Kafka's, and times of both workers refill it."""
    buckets, one = Buckets(), TokenBucket(11, 1_000, 2.0, -22_000)

    def answer(question: AnyQuestion) -> Any:
        assert isinstance(question, UseBucket)
        return buckets.use(question)

    steps = [(0, 5.0), (1, 9.0), (0, 30.0), (1, 2.0), (0, -2.0), (1, 1.0)]

    def play(questions: Questions) -> list[float]:
        workers = [AskedBucket(questions, {"user": "a"}, 11, 1_000, 2.0, -22_000) for _ in range(2)]
        found = []
        for at, (number, permits) in enumerate(steps):
            workers[number].record(permits, at * 700)
            found.append(workers[number].measure(at * 700 + 100))
        return found

    expected = []
    for at, (_, permits) in enumerate(steps):
        one.record(permits, at * 700)
        expected.append(one.measure(at * 700 + 100))
    assert await asked(answer, play) == expected


def test_a_full_bucket_is_forgotten_and_one_in_use_is_not() -> None:
    """A new bucket is full, so forgetting a full one changes no balance."""
    buckets = Buckets()
    buckets.use(UseBucket((("user", "a"),), 1.0, 11, 1_000, 5.0, 1_000))
    buckets.use(UseBucket((("user", "b"),), 1.0, 11, 1_000, None, 1_000))
    buckets.expire(1_000)
    assert len(buckets) == 1
    buckets.expire(10_000)
    assert len(buckets) == 0


async def test_connections_of_a_principal_are_counted_by_the_supervisor() -> None:
    """With a limit the supervisor says who may stay; without one nobody is asked."""
    sent: list[AnyMessage] = []
    asked_for: list[AnyQuestion] = []

    def answer(question: AnyQuestion) -> bool:
        asked_for.append(question)
        return len(asked_for) <= 2

    def play(questions: Questions) -> list[bool]:
        principals = AskedPrincipals(questions, sent.append)
        first = principals.enter(ALICE, only_observes=False)
        principals.max_connections = 1
        rest = [principals.enter(ALICE, only_observes=False) for _ in range(3)]
        principals.leave(ALICE)
        return [first, *rest]

    assert await asked(answer, play) == [True, True, True, False]
    assert asked_for == [EnterPrincipal("User", "alice", False)] * 3
    assert sent == [PrincipalLeft("User", "alice")]
