"""A user's callback, guarded against faults. On a fault the last good result applies, then Kafka's default rule, never "no limit"."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from quota.callbacks.answers import ignore, read_bool, read_limit, read_tags
from quota.callbacks.callback import ClientQuotaCallback, DefaultQuotaCallback
from quota.callbacks.circuit_breaker import CircuitBreaker
from quota.callbacks.cluster import Cluster
from quota.entity import ClientQuotaEntity, ClientQuotaType, KafkaPrincipal
from quota.groups.group import GroupKey, group_key
from quota.names import kept_name

REMEMBERED_MAX: Final = 10_000
"""Last good results kept of each kind; the oldest are dropped first."""

ASK_AGAIN_MS: Final = 1_000
"""Time after a fault until the limits of that quota type are requested again."""

ERROR_CHARS_MAX: Final = 256
SLOW_NS: Final = 1_000_000
"""A call that takes longer counts as slow, since every request waits for it."""

Answer = TypeVar("Answer")
Key = TypeVar("Key")
Value = TypeVar("Value")


class Fault(Exception):
    """The user's callback returned no usable result. The fault has been counted."""


class GuardedCallback(ClientQuotaCallback):
    """A user's callback behind a guard: no exception but `KeyboardInterrupt` leaves it.

    An exception or an invalid result (NaN, zero, negative, of a wrong type) is counted, and replaced by the last good result for the
    same arguments, else by that of the default callback. After five faults in 30 s the callback is not called for 30 s. Updates that
    it missed are delivered again, and limits that were replaced are requested again a second later. It is never called while
    another call of it is running (from inside itself, or another thread). Blocking cannot be prevented here, only measured.

    Attributes:
        errors: faults so far; `faults`: the same by method.
        last_error: text of the last fault, at most 256 characters.
        calls, call_ns_total: calls made and time spent in them; `slow_calls`: those of them that took more than 1 ms.
    """

    def __init__(
        self,
        make: Callable[[], ClientQuotaCallback],
        *,
        now_ns: Callable[[], int],
        on_fault: Callable[[str, str], None] | None = None,
        static_defaults: Mapping[ClientQuotaType, float] | None = None,
    ) -> None:
        """Guard the object that `make` returns.

        Args:
            make: makes the user's callback. Called by `configure`, and again by the next `configure` if it raised.
            now_ns: returns monotonic nanoseconds; `quota` reads no clock.
            on_fault: called with (method, error) of the first fault of each method.
            static_defaults: the ninth level of the default callback.
        """
        statics = static_defaults or {}
        self._make = make
        self._callback: ClientQuotaCallback | None = None
        self._now_ns = now_ns
        self._on_fault = on_fault
        self._defaults = {quota_type: DefaultQuotaCallback(statics.get(quota_type)) for quota_type in ClientQuotaType}
        self._breaker = CircuitBreaker()
        self._busy = False
        self._usable = False
        self._tags: dict[tuple[ClientQuotaType, KafkaPrincipal, str], dict[str, str]] = {}
        self._limits: dict[tuple[ClientQuotaType, GroupKey], float | None] = {}
        self._members: dict[tuple[ClientQuotaType, GroupKey], tuple[KafkaPrincipal, str]] = {}
        self._own_rule: dict[tuple[ClientQuotaType, GroupKey], bool] = {}
        self._missed: dict[tuple[ClientQuotaType, ClientQuotaEntity], float | None] = {}
        self._missed_cluster: Cluster | None = None
        self._ask_again_ms: dict[ClientQuotaType, int] = {}
        self.faults: Counter[str] = Counter()
        self.errors = 0
        self.last_error: str | None = None
        self.calls = 0
        self.call_ns_total = 0
        self.slow_calls = 0

    @property
    def is_open(self) -> bool:
        """Whether calls of the user's callback are suspended."""
        return not self._usable or self._breaker.is_open(self._now_ms())

    @property
    def suspensions(self) -> int:
        """How often calls were suspended after five faults in 30 s."""
        return self._breaker.opened

    # Lifecycle

    def configure(self, configs: Mapping[str, Any]) -> None:
        """Make and configure the user's callback; if that fails, Kafka's default rule applies until a later call succeeds."""
        self._usable = True
        try:
            if self._callback is None:
                self._callback = self._guarded("__init__", self._make)
            self._ask("configure", ignore, configs)
        except Fault:
            self._usable = False
        self._ask_again_soon(*ClientQuotaType)

    def close(self) -> None:
        """Close the user's callback."""
        self._notify("close")

    # Per request

    def quota_metric_tags(self, quota_type: ClientQuotaType, principal: KafkaPrincipal, client_id: str) -> Mapping[str, str]:
        """Return the tags of a client's group; after a fault the last ones returned, else those of Kafka's default rule."""
        question = (quota_type, principal, kept_name(client_id))
        try:
            tags = self._ask("quota_metric_tags", read_tags, quota_type, principal, client_id)
        except Fault:
            return self._tags.get(question) or self._own_tags(*question)
        kept = {kept_name(name): kept_name(value) for name, value in tags.items()}
        if self._tags.get(question) != kept:
            key = (quota_type, group_key(kept))
            _remember(self._tags, question, kept)
            _remember(self._members, key, question[1:])
            self._own_rule.pop(key, None)
        return tags

    def quota_reset_required(self, quota_type: ClientQuotaType) -> bool:
        """Return the callback's result; also True when limits have to be requested again because of a fault."""
        if self._missed or self._missed_cluster is not None:
            self._deliver_missed()
        try:
            reset = self._ask("quota_reset_required", read_bool, quota_type)
        except Fault:
            reset = False
        return self._is_time_to_ask_again(quota_type) or reset

    # Per change

    def quota_limit(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> float | None:
        """Return the limit of a group; after a fault the last one returned, else that of Kafka's default rule."""
        key = (quota_type, group_key(metric_tags))
        if key in self._own_rule:
            return self._defaults[quota_type].quota_limit(quota_type, metric_tags)
        try:
            limit = self._ask("quota_limit", read_limit, quota_type, metric_tags)
        except Fault:
            self._ask_again_soon(quota_type)
            return self._limits[key] if key in self._limits else self._own_limit(key)
        _remember(self._limits, key, limit)
        return limit

    def update_quota(self, quota_type: ClientQuotaType, entity: ClientQuotaEntity, new_value: float) -> None:
        """Deliver a stored quota; it is kept and delivered later if the user's callback fails now."""
        self._defaults[quota_type].update_quota(quota_type, entity, new_value)
        self._deliver(quota_type, entity, new_value)

    def remove_quota(self, quota_type: ClientQuotaType, entity: ClientQuotaEntity) -> None:
        """Deliver a removal; it is kept and delivered later if the user's callback fails now."""
        self._defaults[quota_type].remove_quota(quota_type, entity)
        self._deliver(quota_type, entity, None)

    def update_cluster_metadata(self, cluster: Cluster) -> bool:
        """Deliver the cluster; it is kept and delivered later if the user's callback fails now."""
        self._missed_cluster = None
        try:
            return self._ask("update_cluster_metadata", read_bool, cluster)
        except Fault:
            self._missed_cluster = cluster
            return False

    # Calls of the user's callback

    def _ask(self, method: str, read: Callable[[Any], Answer], *arguments: Any) -> Answer:
        if self._callback is None or self._busy or self.is_open:
            raise Fault
        callback = self._callback
        return self._guarded(method, lambda: read(getattr(callback, method)(*arguments)))

    def _guarded(self, method: str, call: Callable[[], Answer]) -> Answer:
        self._busy = True
        started_ns = self._now_ns()
        try:
            return call()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever it raises (SystemExit too), no connection pays for it
            self._note_fault(method, error)
            raise Fault from None
        finally:
            self._busy = False
            self.calls += 1
            took_ns = self._now_ns() - started_ns
            self.call_ns_total += took_ns
            self.slow_calls += took_ns > SLOW_NS

    def _notify(self, method: str, *arguments: Any) -> bool:
        try:
            self._ask(method, ignore, *arguments)
        except Fault:
            return False
        return True

    def _note_fault(self, method: str, error: BaseException) -> None:
        self.errors += 1
        self.faults[method] += 1
        self.last_error = f"{method}: {_text_of(error)}"[:ERROR_CHARS_MAX]
        was_opened = self._breaker.opened
        self._breaker.failed(self._now_ms())
        if self._breaker.opened > was_opened:
            self._ask_again_soon(*ClientQuotaType)
        if self.faults[method] == 1 and self._on_fault is not None:
            self._on_fault(method, self.last_error)

    def _now_ms(self) -> int:
        return self._now_ns() // 1_000_000

    # Recovery after faults

    def _own_tags(self, quota_type: ClientQuotaType, principal: KafkaPrincipal, client_id: str) -> Mapping[str, str]:
        tags = self._defaults[quota_type].quota_metric_tags(quota_type, principal, client_id)
        key = (quota_type, group_key(tags))
        if key not in self._members:  # else the tags are the user's callback's own, with the same keys
            _remember(self._own_rule, key, True)
        return tags

    def _own_limit(self, key: tuple[ClientQuotaType, GroupKey]) -> float | None:
        default = self._defaults[key[0]]
        member = self._members.get(key)
        tags = dict(key[1]) if member is None else default.quota_metric_tags(key[0], *member)
        return default.quota_limit(key[0], tags)

    def _deliver(self, quota_type: ClientQuotaType, entity: ClientQuotaEntity, value: float | None) -> bool:
        # Missed updates are kept by entity, not by time: only the last value of each is needed.
        taken = (
            self._notify("remove_quota", quota_type, entity) if value is None else self._notify("update_quota", quota_type, entity, value)
        )
        if taken:
            self._missed.pop((quota_type, entity), None)
        else:
            self._missed[quota_type, entity] = value
        return taken

    def _deliver_missed(self) -> None:
        if self._busy or self.is_open:
            return
        for (quota_type, entity), value in list(self._missed.items()):
            if not self._deliver(quota_type, entity, value):
                return
            self._ask_again_ms[quota_type] = self._now_ms()
        if self._missed_cluster is not None and self.update_cluster_metadata(self._missed_cluster):
            self._ask_again_ms.update(dict.fromkeys(ClientQuotaType, self._now_ms()))

    def _ask_again_soon(self, *quota_types: ClientQuotaType) -> None:
        at_ms = max(self._now_ms() + ASK_AGAIN_MS, self._breaker.open_until_ms)
        for quota_type in quota_types:
            self._ask_again_ms[quota_type] = at_ms

    def _is_time_to_ask_again(self, quota_type: ClientQuotaType) -> bool:
        at_ms = self._ask_again_ms.get(quota_type)
        if at_ms is None or self._now_ms() < at_ms:
            return False
        del self._ask_again_ms[quota_type]
        return True


def _remember(table: dict[Key, Value], key: Key, value: Value) -> None:
    if len(table) >= REMEMBERED_MAX and key not in table:
        del table[next(iter(table))]
    table[key] = value


def _text_of(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - an exception that cannot even be printed
        return type(error).__name__
