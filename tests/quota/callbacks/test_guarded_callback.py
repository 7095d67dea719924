"""A user's callback that raises or returns bad values ends no connection and lifts no limit."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from quota.callbacks.callback import ClientQuotaCallback
from quota.callbacks.cluster import Cluster
from quota.callbacks.guarded_callback import REMEMBERED_MAX, SLOW_NS, GuardedCallback
from quota.entity import DEFAULT, UNLIMITED, ClientQuotaEntity, ClientQuotaType, KafkaPrincipal
from quota.groups.group import QuotaGroup
from quota.manager import ClientQuotaManager
from tests.support.faulty_callback import FaultyCallback, raising
from tests.support.quota_calls import record

ALICE = KafkaPrincipal("User", "alice")
PRODUCE = ClientQuotaType.PRODUCE
ANY_CLIENT = ClientQuotaEntity(client_id=DEFAULT)


class UnprintableError(Exception):
    """An exception that raises when it is printed."""

    def __str__(self) -> str:
        raise ValueError("no text")


async def answer_later() -> float:
    """Return a coroutine where a number is expected."""
    return 1.0


FAULTS: list[Any] = [
    pytest.param(raising(ValueError("broken")), id="raises"),
    pytest.param(raising(SystemExit(3)), id="exits"),
    pytest.param(raising(RecursionError()), id="recursion"),
    pytest.param(raising(UnprintableError()), id="unprintable"),
    pytest.param(lambda: math.nan, id="nan"),
    pytest.param(lambda: -1.0, id="negative"),
    pytest.param(lambda: 0, id="zero"),
    pytest.param(lambda: math.inf, id="infinite"),
    pytest.param(lambda: "100", id="text"),
    pytest.param(lambda: 10**400, id="too-large"),
    pytest.param(list, id="list"),
    pytest.param(answer_later, id="async"),
]


class Guarded:
    """A guarded faulty callback in a manager, with a clock that the test sets."""

    def __init__(self, make: Callable[[], ClientQuotaCallback] | None = None) -> None:
        self.faulty = FaultyCallback()
        self.now_ms = 1_000_000
        self.reported: list[tuple[str, str]] = []
        self.callback = GuardedCallback(
            make or (lambda: self.faulty), now_ns=lambda: self.now_ms * 1_000_000, on_fault=lambda *fault: self.reported.append(fault)
        )
        self.callback.configure({})
        self.manager = ClientQuotaManager(PRODUCE, QuotaGroup, callback=self.callback)

    def record(self, client_id: str, amount: float) -> int:
        """Record and return the throttle time."""
        return record(self.manager, ALICE, client_id, amount, self.now_ms)

    def bound(self, client_id: str) -> float:
        """Return the quota that applies to a client's next request."""
        return self.manager.group(ALICE, client_id, self.now_ms).bound


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_limit_is_the_last_good_one(fault: Callable[[], Any]) -> None:
    """A group keeps its last valid limit, each fault is counted, and the first one is reported."""
    guarded = Guarded()
    assert guarded.bound("etl") == 100.0
    guarded.faulty.acts["quota_limit"] = fault
    guarded.manager.refresh_bounds()
    guarded.manager.refresh_bounds()
    assert guarded.bound("etl") == 100.0
    assert guarded.callback.errors == guarded.callback.faults["quota_limit"] == 2
    assert [method for method, _ in guarded.reported] == ["quota_limit"]
    assert guarded.callback.last_error is not None
    assert guarded.callback.last_error.startswith("quota_limit: ")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_first_limit_is_kafkas_own(fault: Callable[[], Any]) -> None:
    """A new group without a valid limit gets the limit of Kafka's default callback."""
    guarded = Guarded()
    guarded.manager.update_quota(ANY_CLIENT, 50.0)
    guarded.faulty.acts["quota_limit"] = fault
    assert guarded.bound("etl") == 50.0
    assert guarded.record("etl", 1_000) == 10_000


@pytest.mark.parametrize("fault", [*FAULTS, pytest.param(lambda: {"a": 1}, id="tag-of-a-number"), pytest.param(lambda: None, id="none")])
def test_bad_tags_are_the_last_good_ones(fault: Callable[[], Any]) -> None:
    """With invalid tags a known client stays in its group, and a new one gets the group of Kafka's default callback."""
    guarded = Guarded()
    guarded.manager.update_quota(ANY_CLIENT, 50.0)
    known = guarded.manager.group(ALICE, "etl", 0)
    guarded.faulty.acts["quota_metric_tags"] = fault
    assert guarded.manager.group(ALICE, "etl", 0) is known
    fresh = guarded.manager.group(ALICE, "web", 0)
    assert (fresh.tags, fresh.bound) == ({"user": "", "client-id": "web"}, 50.0)


def test_too_many_tags_are_refused() -> None:
    """More than sixteen tags are refused."""
    guarded = Guarded()
    guarded.faulty.acts["quota_metric_tags"] = lambda: {str(number): "" for number in range(17)}
    assert guarded.manager.group(ALICE, "etl", 0).tags == {"user": "", "client-id": "etl"}


def test_none_is_an_honest_answer() -> None:
    """A limit of None means no limit and is no fault."""
    guarded = Guarded()
    guarded.faulty.acts["quota_limit"] = lambda: None
    assert guarded.bound("etl") == UNLIMITED
    assert guarded.callback.errors == 0


def test_a_limit_is_asked_for_again() -> None:
    """The callback is asked again one second after a fault, and its limit applies."""
    guarded = Guarded()
    guarded.faulty.acts["quota_limit"] = raising(ValueError("not yet"))
    assert guarded.bound("etl") == UNLIMITED  # the default callback, without a quota
    del guarded.faulty.acts["quota_limit"]
    guarded.now_ms += 999
    assert guarded.bound("etl") == UNLIMITED
    guarded.now_ms += 1
    assert guarded.bound("etl") == 100.0


def test_who_keeps_failing_is_left_alone_for_a_while() -> None:
    """After five faults within 30 s the callback is not called for 30 s, and its last valid results apply meanwhile."""
    guarded = Guarded()
    assert guarded.bound("etl") == 100.0
    guarded.faulty.acts["quota_metric_tags"] = raising(ValueError("broken"))
    for _ in range(5):
        guarded.now_ms += 7_000
        assert guarded.bound("etl") == 100.0
    assert guarded.callback.is_open
    guarded.faulty.acts.clear()
    guarded.faulty.calls.clear()
    guarded.faulty.limit = 200.0
    guarded.now_ms += 29_999
    assert guarded.bound("etl") == 100.0
    assert guarded.faulty.calls == []
    guarded.now_ms += 1
    assert guarded.bound("etl") == 200.0
    assert not guarded.callback.is_open


def test_rare_faults_do_not_open_the_circuit() -> None:
    """Faults that are further apart than five in 30 s are only counted."""
    guarded = Guarded()
    guarded.faulty.acts["quota_reset_required"] = raising(ValueError("now and then"))
    for _ in range(20):
        guarded.now_ms += 7_501
        guarded.bound("etl")
    assert (guarded.callback.errors, guarded.callback.is_open) == (20, False)


def test_missed_updates_are_delivered() -> None:
    """Quotas and clusters that the callback failed to accept are delivered to it again, with their last values."""
    guarded = Guarded()
    etl = ClientQuotaEntity(client_id="etl")
    cluster = Cluster("one")
    for method in ("update_quota", "remove_quota", "update_cluster_metadata"):
        guarded.faulty.acts[method] = raising(ValueError("busy"))
    guarded.manager.update_quota(etl, 1.0)
    guarded.manager.update_quota(ANY_CLIENT, 5.0)
    guarded.manager.update_quota(etl, 2.0)
    assert not guarded.callback.update_cluster_metadata(cluster)
    guarded.faulty.acts.clear()
    guarded.faulty.limit = 300.0
    assert guarded.bound("etl") == 300.0
    assert guarded.faulty.entities == {etl: 2.0, ANY_CLIENT: 5.0}
    assert guarded.faulty.clusters == [cluster]


@pytest.mark.parametrize("method", ["update_quota", "update_cluster_metadata", "quota_reset_required", "close"])
def test_no_method_gets_an_exception_out(method: str) -> None:
    """An exception in any method of the callback is counted and does not reach the manager."""
    guarded = Guarded()
    guarded.faulty.acts[method] = raising(ValueError("broken"))
    guarded.manager.update_quota(ANY_CLIENT, 5.0)
    guarded.callback.update_cluster_metadata(Cluster(None))
    guarded.bound("etl")
    guarded.callback.close()
    assert guarded.callback.errors >= 1


def test_a_keyboard_interrupt_gets_through() -> None:
    """A KeyboardInterrupt in the callback is raised."""
    guarded = Guarded()
    guarded.faulty.acts["quota_limit"] = raising(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        guarded.bound("etl")


def test_a_class_that_cannot_be_made_or_configured() -> None:
    """Kafka's default callback applies until the class can be instantiated and configured."""
    made: list[FaultyCallback] = []

    def make() -> ClientQuotaCallback:
        made.append(FaultyCallback())
        if len(made) == 1:
            raise OSError("no settings")
        made[-1].acts["configure"] = raising(ValueError("bad settings")) if len(made) == 2 else lambda: None
        return made[-1]

    guarded = Guarded(make)
    guarded.manager.update_quota(ANY_CLIENT, 50.0)
    assert guarded.bound("etl") == 50.0
    guarded.callback.configure({})
    assert (guarded.bound("etl"), guarded.callback.is_open) == (50.0, True)
    del made[1].acts["configure"]
    guarded.callback.configure({})
    assert (guarded.bound("etl"), guarded.callback.is_open, len(made)) == (100.0, False, 2)


def test_it_is_never_called_while_a_call_is_under_way() -> None:
    """A call of the callback from within itself returns the last valid result instead of entering it again."""
    guarded = Guarded()
    inside: list[float | None] = []
    assert guarded.bound("etl") == 100.0
    guarded.faulty.calls.clear()
    guarded.faulty.acts["quota_limit"] = lambda: inside.append(guarded.callback.quota_limit(PRODUCE, {"letter": "e"})) or 70.0
    guarded.manager.refresh_bounds()
    assert (inside, guarded.bound("etl")) == ([100.0], 70.0)
    assert guarded.faulty.calls.count("quota_limit") == 1


def test_slowness_is_measured() -> None:
    """The time of calls is summed up, and slow calls are counted."""
    guarded = Guarded()

    def dawdle() -> float:
        guarded.now_ms += 40
        return 100.0

    assert guarded.callback.call_ns_total <= SLOW_NS * guarded.callback.calls
    guarded.faulty.acts["quota_limit"] = dawdle
    guarded.bound("etl")
    assert guarded.callback.call_ns_total == 40_000_000
    assert guarded.callback.slow_calls == 1 < guarded.callback.calls
    assert guarded.callback.call_ns_total > SLOW_NS * guarded.callback.calls


def test_memory_of_answers_has_a_bound() -> None:
    """At most 10,000 results of a method are remembered."""
    guarded = Guarded()
    for number in range(REMEMBERED_MAX + 50):
        guarded.callback.quota_metric_tags(PRODUCE, ALICE, f"{number}")
    assert len(guarded.callback._tags) == REMEMBERED_MAX
