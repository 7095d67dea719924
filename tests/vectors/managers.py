"""Replays traces of quota managers: one alone, one with a custom callback, and three together as requests use them."""

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from proxy.enforcement.groups.child_groups import enforced_bucket, enforced_group
from quota.callbacks.callback import ClientQuotaCallback
from quota.controller_mutation import ControllerMutationQuotaManager
from quota.entity import DEFAULT, ClientQuotaEntity, ClientQuotaType, KafkaPrincipal
from quota.manager import ClientQuotaManager
from quota.request_time import PERCENT_PER_NANOSECOND, ClientRequestQuotaManager
from tests.support.quota_calls import record, record_throttle, record_time, record_unchecked, window_max
from tests.vectors.compare import Case, differences

Manager = ClientQuotaManager | ControllerMutationQuotaManager
INT32_MAX = 2**31 - 1


def entity_of(parts: dict[str, str | None]) -> ClientQuotaEntity:
    """Return the entity that a vector names: null is the default, every name is literal."""

    def name(key: str) -> str | None:
        return (DEFAULT if parts[key] is None else parts[key]) if key in parts else None

    return ClientQuotaEntity(name("user"), name("client-id"), parts.get("user") == DEFAULT, parts.get("client-id") == DEFAULT)


def principal_of(event: Mapping[str, Any]) -> KafkaPrincipal:
    """Return the principal of a request."""
    return KafkaPrincipal("User", event["user"])


def new_manager(kind: str, num_samples: int, window_s: int, lazy: bool, callback: ClientQuotaCallback | None = None) -> Manager:
    """Return a new manager of the kind that a vector names."""
    window_ms = window_s * 1000
    if kind == "controller-mutation":
        return ControllerMutationQuotaManager(enforced_bucket, num_samples=num_samples, window_ms=window_ms, callback=callback)
    if kind == "request":
        return ClientRequestQuotaManager(enforced_group, num_samples=num_samples, window_ms=window_ms, callback=callback, lazy=lazy)
    quota_type = ClientQuotaType.PRODUCE if kind == "produce" else ClientQuotaType.FETCH
    return ClientQuotaManager(quota_type, enforced_group, num_samples=num_samples, window_ms=window_ms, callback=callback, lazy=lazy)


def run_client_quota_manager(case: Case, columns: list[str], lazy: bool) -> Iterator[str]:
    """Compare tags, limits, enabled quota types, bounds after each update, and throttle times."""
    manager = new_manager(case["manager"], case["samples"], case["window_s"], lazy)
    for index, event in enumerate(case["events"]):
        yield from differences(f"event {index}", event, _manager_event(manager, event))


def _manager_event(manager: Manager, event: dict[str, Any]) -> dict[str, Any]:
    now_ms, operation = event["t"], event["op"]
    if operation == "update":
        manager.update_quota(entity_of(event["entity"]), event["value"])
        bounds = sorted([group.tags["user"], group.tags["client-id"], group.bound] for group in manager.groups())
        return {"bounds_after": bounds}
    principal, client_id = principal_of(event), event["client_id"]
    if operation == "record":
        got: dict[str, Any] = {"enabled": manager.enabled}
        if manager.enabled:
            group = manager.group(principal, client_id, now_ms)
            got |= {"tags": [group.tags["user"], group.tags["client-id"]], "limit": group.bound}
        got["throttle_ms"] = record(manager, principal, client_id, event["value"], now_ms)
        return got
    if operation == "max_value_in_window":
        result = window_max(manager, principal, client_id, now_ms)
        return {"result": result, "result_int32": int(min(result, INT32_MAX))}
    record_unchecked(manager, principal, client_id, event["value"] * (-1 if operation == "unrecord" else 1), now_ms)
    return {}


class RecordingCallback(ClientQuotaCallback):
    """The callback of the callback-calls trace: it groups users by the part of their name before the first `_`, and notes every call."""

    def __init__(self) -> None:
        self.calls: list[list[Any]] = []
        self.limits: dict[str, float] = {}
        self.on_reset: dict[str, float] | None = None

    def quota_metric_tags(self, quota_type: ClientQuotaType, principal: KafkaPrincipal, client_id: str) -> Mapping[str, str]:
        """Return the group's name."""
        self.calls.append(["quotaMetricTags", quota_type.name, principal.name, client_id])
        return {"group": principal.name.split("_")[0]}

    def quota_limit(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> float | None:
        """Return the group's entry."""
        answer = self.limits.get(metric_tags["group"])
        self.calls.append(["quotaLimit", quota_type.name, dict(metric_tags), answer])
        return answer

    def update_quota(self, quota_type: ClientQuotaType, entity: ClientQuotaEntity, new_value: float) -> None:
        """Set the entry of the first part's group."""
        self.calls.append(["updateQuota", quota_type.name, _parts(entity), new_value])
        self.limits[entity.parts[0].name.split("_")[0]] = new_value

    def remove_quota(self, quota_type: ClientQuotaType, entity: ClientQuotaEntity) -> None:
        """Remove that entry."""
        self.calls.append(["removeQuota", quota_type.name, _parts(entity)])
        self.limits.pop(entity.parts[0].name.split("_")[0], None)

    def quota_reset_required(self, quota_type: ClientQuotaType) -> bool:
        """Return True once new limits are waiting."""
        reset, self.on_reset = self.on_reset is not None, None if self.on_reset is None else self.limits.update(self.on_reset)
        self.calls.append(["quotaResetRequired", quota_type.name, reset])
        return reset

    def close(self) -> None:
        """Note the call: a manager never closes a shared callback."""
        self.calls.append(["close"])


def _parts(entity: ClientQuotaEntity) -> list[list[str]]:
    return [[part.type.value, part.name] for part in entity.parts]


def run_callback_calls(case: Case, columns: list[str], lazy: bool) -> Iterator[str]:
    """Compare which methods of a custom callback are called, in what order, and the results."""
    callback = RecordingCallback()
    manager = new_manager(case["manager"], case["samples"], case["window_s"], lazy, callback)
    for index, step in enumerate(case["steps"]):
        callback.calls.clear()
        callback.limits.update(step.get("limits_set_before", {}))
        callback.on_reset = step.get("reset_sets_limits")
        got: dict[str, Any] = {"result": _callback_step(manager, step, case["t"])}
        got["calls"] = _with_runs_sorted(callback.calls)
        got["bounds_after"] = sorted(([group.tags, group.bound] for group in manager.groups()), key=str)
        yield from differences(f"step {index}", step, got)


def _callback_step(manager: Manager, step: dict[str, Any], now_ms: int) -> Any:
    operation = step["op"]
    if operation == "enabled":
        return manager.enabled
    if operation == "update":
        return manager.update_quota(entity_of(step["entity"]), step["value"])
    if operation == "refresh":
        return manager.refresh_bounds()
    if operation == "shutdown":
        return manager.close()
    who = principal_of(step), step["client_id"]
    if operation == "max_value_in_window":
        return window_max(manager, *who, now_ms)
    if operation == "throttle":
        return record_throttle(manager, *who, step["throttle_ms"], now_ms)
    if operation == "unrecord":
        return record_unchecked(manager, *who, -step["value"], now_ms)
    return record(manager, *who, step["value"], now_ms)


def _with_runs_sorted(calls: list[list[Any]]) -> list[list[Any]]:
    ordered: list[list[Any]] = []
    for method, run in groupby(calls, key=lambda call: call[0]):
        neighbours = list(run)
        ordered += sorted(neighbours, key=lambda call: call[2]["group"]) if method == "quotaLimit" else neighbours
    return ordered


class RequestFlow:
    """Three managers that are called for each request as the broker calls them."""

    def __init__(self, case: Case, lazy: bool) -> None:
        numbers = (case["samples"], case["window_s"], lazy)
        self.produce = new_manager("produce", *numbers)
        self.fetch = new_manager("fetch", *numbers)
        self.request = ClientRequestQuotaManager(enforced_group, num_samples=case["samples"], window_ms=case["window_s"] * 1000, lazy=lazy)
        self.who = KafkaPrincipal("User", "ANONYMOUS")
        for name, value in case["default_client_quotas"].items():
            if value is not None:
                getattr(self, name).update_quota(ClientQuotaEntity(client_id=DEFAULT), value)

    def handle(self, event: dict[str, Any]) -> dict[str, Any]:
        """Return the broker's answer to a request."""
        handlers = {"produce": self._produce, "fetch": self._fetch}
        bandwidth_ms, request_ms, got = handlers.get(event["api"], self._other)(event)
        got["request_ms"] = request_ms
        got["throttle_time_ms"] = throttle_ms = max(bandwidth_ms, request_ms)
        winner = event["api"].capitalize() if bandwidth_ms > request_ms else "Request"
        got["throttled_by"] = winner if throttle_ms > 0 else None
        return got

    def _produce(self, event: dict[str, Any]) -> tuple[int, int, dict[str, Any]]:
        client_id, now_ms = event["client_id"], event["t"]
        bandwidth_ms = record(self.produce, self.who, client_id, event["size"], now_ms)
        if event["acks"] == 0:
            self.request.record_exempt(event["handler_ns"], now_ms)
            self.request.record_exempt(event["network_ns"], now_ms)
            return bandwidth_ms, 0, {"bandwidth_ms": bandwidth_ms}
        return bandwidth_ms, self._request_time(event), {"bandwidth_ms": bandwidth_ms}

    def _fetch(self, event: dict[str, Any]) -> tuple[int, int, dict[str, Any]]:
        client_id, now_ms = event["client_id"], event["t"]
        cap = int(min(window_max(self.fetch, self.who, client_id, now_ms), INT32_MAX))
        request_ms = self._request_time(event)
        bandwidth_ms = record(self.fetch, self.who, client_id, event["size"], now_ms)
        empty = max(bandwidth_ms, request_ms) > 0
        if empty:
            record_unchecked(self.fetch, self.who, client_id, -event["size"], now_ms)
        return bandwidth_ms, request_ms, {"bandwidth_ms": bandwidth_ms, "empty_response": empty, "fetch_max_bytes_cap": cap}

    def _other(self, event: dict[str, Any]) -> tuple[int, int, dict[str, Any]]:
        return 0, self._request_time(event), {}

    def _request_time(self, event: dict[str, Any]) -> int:
        request_ms = record_time(self.request, self.who, event["client_id"], event["handler_ns"], event["t"])
        record_unchecked(self.request, self.who, event["client_id"], event["network_ns"] * PERCENT_PER_NANOSECOND, event["t"])
        return request_ms


def run_request_flow(case: Case, columns: list[str], lazy: bool) -> Iterator[str]:
    """Compare bandwidth and request time together: the longer throttle, un-recorded values, and the size limit of a fetch."""
    flow = RequestFlow(case, lazy)
    for index, event in enumerate(case["events"]):
        yield from differences(f"event {index}", event, flow.handle(event))
    last_ms = case["events"][-1]["t"]
    exempt = flow.request.exempt_request_time.measure(last_ms) if flow.request.enabled else 0.0
    yield from differences("at the end", case, {"final_exempt_request_time": exempt})
