"""Replays connections: accepted, waiting or refused ones, changes of limits, and metrics."""

from collections.abc import Iterator
from typing import Any

from quota.connections.connection_quotas import ACCEPTED, ConnectionQuotas, Outcome
from tests.support.quota_calls import update_rate
from tests.vectors.compare import Case, differences

MAX, RATE = "max.connections", "max.connection.creation.rate"


class Broker:
    """A broker that only accepts connections; a manual clock simulates its waits."""

    def __init__(self, case: Case) -> None:
        self.settings = {MAX: case["max_connections"], RATE: case["max_connection_creation_rate"]}
        self.quotas = ConnectionQuotas(
            case["listeners"], protected=case["inter_broker_listener"], num_samples=case["samples"], window_ms=case["window_s"] * 1_000
        )
        self.quotas.update_process(self.settings[MAX], self.settings[RATE])
        for listener in case["listeners"]:
            self.configure(listener, case["listener_overrides"].get(listener, {}))
        self.quotas.ips.max_connections = case["max_connections_per_ip"]
        self.quotas.ips.max_overrides = case["max_connections_per_ip_overrides"]

    def configure(self, listener: str, config: dict[str, int]) -> None:
        """Set a listener's settings; missing ones come from the broker."""
        effective = self.settings | config
        self.quotas.update_listener(listener, effective[MAX], effective[RATE])

    def play(self, event: dict[str, Any]) -> dict[str, Any]:
        """Play an event; return what the broker does."""
        operation, quotas = event["op"], self.quotas
        if operation == "inc":
            return self._accept(event)
        if operation == "dec":
            key = quotas.ips.key_of(0, event["ip"])
            return {"ip_count": quotas.leave(quotas.listeners[event["listener"]], key)}
        if operation == "metrics":
            return {"values": self._metrics(event["t"])}
        if operation == "max_connections":
            self.settings[MAX] = event["value"]
            quotas.update_process(event["value"], quotas.broker_rate.bound)
            return {
                "exceeded": {name: quotas.exceeds_max_connections and not listener.protected for name, listener in quotas.listeners.items()}
            }
        if operation == "ip_quota":
            update_rate(quotas.ips, event["ip"], event["rate"])
        elif operation == "broker_rate":
            self.settings[RATE] = event["rate"]
            quotas.update_process(quotas.max_connections, event["rate"])
        else:
            self.configure(event["listener"], event["config"])
        return {}

    def _accept(self, event: dict[str, Any]) -> dict[str, Any]:
        quotas, now_ms, waits = self.quotas, event["t"], []
        listener = quotas.listeners[event["listener"]]
        decision = quotas.arrive(listener, now_ms)
        if decision is not ACCEPTED:
            if decision.delay_ms:
                waits.append(decision.delay_ms)
                now_ms = decision.until_ms
            if not quotas.has_slot(listener):
                return {"waits_ms": [*waits, 0], "t_done": now_ms, "outcome": "would_block_for_slot"}
            listener.record_blocked(now_ms - event["t"], now_ms)
        quotas.take_slot(listener)
        decision = quotas.admit(listener, quotas.ips.key_of(0, event["ip"]), now_ms)
        got = {"waits_ms": waits, "t_done": now_ms, "outcome": decision.outcome.value}
        if decision.outcome is Outcome.IP_THROTTLED:
            got["close_after_ms"] = decision.delay_ms
        if decision.outcome is Outcome.TOO_MANY_FROM_IP:
            got["limit"] = decision.limit
        return got

    def _metrics(self, now_ms: int) -> dict[str, Any]:
        quotas, listeners = self.quotas, self.quotas.listeners.values()
        return {
            "broker_rate": quotas.broker_rate.measure(now_ms),
            "listener_rate": {one.name: one.rate.measure(now_ms) for one in listeners},
            "listener_throttle_avg": {one.name: one.throttle_time.measure(now_ms) for one in listeners},
            "ip_throttle_avg": {one.name: one.ip_throttle_time.measure(now_ms) for one in listeners},
            "ip_rate": {key[1]: rate.measure(now_ms) for key, rate in quotas.ips.rates()},
            "ip_bound": {key[1]: float(rate.bound) for key, rate in quotas.ips.rates()},
            "blocked_ms": {one.name: one.blocked_ms for one in listeners},
        }


def run_connection_quotas(case: Case, columns: list[str], lazy: bool) -> Iterator[str]:
    """Replay accepts, closes and changes of limits; compare the outcome and the metrics after each, bit by bit."""
    broker = Broker(case)
    for index, event in enumerate(case["events"]):
        got = broker.play(event)
        yield from differences(f"event {index}", event, {key: value for key, value in got.items() if key != "values"})
        for name, value in got.get("values", {}).items():
            where = f"event {index}: {name}"
            expected = event["values"][name]
            if isinstance(value, dict) and value.keys() != expected.keys():
                yield f"{where} is for {sorted(value)}, expected {sorted(expected)}"
            elif isinstance(value, dict):
                yield from differences(where, expected, value)
            else:
                yield from differences(where, event["values"], {name: value})
