"""Row G4: a quota callback that fails in any way closes no connection and lifts no limit."""

from typing import Any

import pytest

from proxy.config.model import Callback
from tests.support.faulty_callback import FaultyCallback, raising
from tests.support.frames.kafka_frames import throttle_ms
from tests.support.scripted.gateway_fixture import RunningGateway, open_gateway, quotas
from tests.support.scripted.scripted_broker import ScriptedBroker
from tests.support.scripted.scripted_client import ScriptedClient
from tests.support.scripted.scripted_frames import produce_of_size

VERSION = 7
FAULTY = Callback(class_name="tests.support.faulty_callback:FaultyCallback")


async def coroutine() -> None:
    """Return a coroutine where a value is expected, as an async method does."""


FAULTS: dict[str, Any] = {
    "raises": raising(ValueError("boom")),
    "exits": raising(SystemExit(3)),
    "memory": raising(MemoryError()),
    "recursion": raising(RecursionError()),
    "nan": lambda: float("nan"),
    "infinity": lambda: float("inf"),
    "zero": lambda: 0,
    "negative": lambda: -5.0,
    "true": lambda: True,
    "text": lambda: "1000",
    "list": list,
    "huge-tags": lambda: {str(number): "x" for number in range(10_000)},
    "wrong-tags": lambda: {1: 2},
    "coroutine": coroutine,
}


def inner(sluice: RunningGateway) -> FaultyCallback:
    """Return the operator's callback behind the guard."""
    _, guard = sluice.app.scopes.callbacks  # the first callback is that of controller mutations
    callback = guard._callback
    assert isinstance(callback, FaultyCallback)
    return callback


async def announced(client: ScriptedClient, number: int, size: int = 3_004) -> int:
    """Produce and return the throttle time in the response."""
    return throttle_ms(await client.ask(produce_of_size(size, number, version=VERSION)), 0, VERSION)


@pytest.mark.parametrize("method", ["quota_metric_tags", "quota_limit", "quota_reset_required"])
@pytest.mark.parametrize("fault", FAULTS)
async def test_g04_the_last_good_answer_holds(method: str, fault: str) -> None:
    """When a callback's method fails, its last valid answer holds, the connection stays open, and the fault is counted."""
    async with ScriptedBroker() as broker, open_gateway(broker, callback=FAULTY, mode="mute") as sluice:
        client = await sluice.client()
        assert await announced(client, 1, 900) == 0
        inner(sluice).acts = {
            method: FAULTS[fault],
            "quota_reset_required": FAULTS[fault] if method == "quota_reset_required" else lambda: True,
        }
        for number in range(2, 5):
            other = await sluice.client()
            assert await announced(other, number) > 0, "no limit because of an error"
        _, guard = sluice.app.scopes.callbacks  # the first callback is that of controller mutations
        if (method, fault) != ("quota_reset_required", "true") and (method, fault) != ("quota_metric_tags", "true"):
            assert guard.errors > 0
        assert len(sluice.connections) == 4
        assert sluice.closes == {}


@pytest.mark.parametrize("method", ["quota_metric_tags", "quota_limit", "update_quota", "configure"])
@pytest.mark.parametrize("fault", ["raises", "exits", "nan", "text"])
async def test_g04_failing_from_the_start(method: str, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a callback fails from its first call on, clients are throttled by Kafka's own rule and the quota table."""
    made = FaultyCallback.__init__

    def born_faulty(self: FaultyCallback) -> None:
        made(self)
        self.limit = 100.0
        self.acts = {method: FAULTS[fault]}

    monkeypatch.setattr(FaultyCallback, "__init__", born_faulty)
    async with ScriptedBroker() as broker, open_gateway(broker, callback=FAULTY, mode="mute", table=quotas(produce=100)) as sluice:
        client = await sluice.client()
        assert await announced(client, 1) > 0
        assert sluice.closes == {}


async def test_g04_a_class_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """When a callback's class cannot be instantiated, clients are throttled by Kafka's own rule."""
    monkeypatch.setattr(FaultyCallback, "__init__", lambda _self: FAULTS["raises"]())
    async with ScriptedBroker() as broker, open_gateway(broker, callback=FAULTY, mode="mute", table=quotas(produce=100)) as sluice:
        client = await sluice.client()
        assert await announced(client, 1) > 0
        assert sluice.closes == {}


async def test_g04_it_recovers() -> None:
    """A callback that failed is called again for the next clients."""
    async with ScriptedBroker() as broker, open_gateway(broker, callback=FAULTY, mode="mute") as sluice:
        client = await sluice.client()
        assert await announced(client, 1, 900) == 0
        callback = inner(sluice)
        callback.acts = {"quota_metric_tags": FAULTS["raises"]}
        assert await announced(await sluice.client(), 2) > 0
        calls = len(callback.calls)
        callback.acts = {}
        await announced(await sluice.client(), 3)
        assert len(callback.calls) > calls
