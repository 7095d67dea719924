"""Computes the effect of new quotas on recent decisions, before the quotas are set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from pipeline.errors import BadInputError, IncompleteError
from pipeline.quotas.file import BYTE_RATES, CONNECTION_RATE, NUMBERS, QuotaFile
from pipeline.text import human_ms
from pipeline.whatif.comparison import Change, changes_of
from pipeline.whatif.groups import REGROUP
from pipeline.whatif.work import Work, outcomes_of, plan_work, run_all
from quota.callbacks.callback import DefaultQuotaCallback
from quota.entity import DEFAULT, ClientQuotaEntity, ClientQuotaType

Entity = tuple[tuple[str, str | None], ...]
_KEYS: Final[Mapping[str, ClientQuotaType]] = {**BYTE_RATES, **NUMBERS}


class NoForecastError(Exception):
    """There are no decisions to compute from. The message is one line."""


class GroupForecast(NamedTuple):
    """One group under the new quotas."""

    group: str
    quota_type: str
    node: str
    throttled_today: int
    throttled: int
    wait_ms_today: int
    wait_ms: int

    @property
    def text(self) -> str:
        """The waits today and under the new quotas, as text."""
        waits = f"waits {human_ms(self.wait_ms_today)} -> {human_ms(self.wait_ms)}"
        return f"throttled {self.throttled_today:,} -> {self.throttled:,} times, {waits}"


class Forecast(NamedTuple):
    """The effect of new quotas.

    Attributes:
        groups: each group with decisions.
        load_ms: length of the recorded load in ms: the time from the first to the last decision of each file set, overlaps counted once.
    """

    groups: list[GroupForecast]
    load_ms: int


def forecast_groups(directory: Path, quotas: Mapping[Entity, Mapping[str, float]], since_s: float) -> Forecast:
    """Return the effect on each group with decisions since `since_s`.

    Args:
        directory: the metering directory.
        quotas: all quotas that would be in force, by entity (types and names, None for the default) and key.
        since_s: wall-clock time in seconds; file sets that ended before it are left out.

    Raises:
        NoForecastError: there are no file sets since then, or they cannot be read.
    """
    try:
        work = plan_work(directory, [_quota_file(quotas)], REGROUP, since_ms=int(since_s * 1_000))
    except (BadInputError, IncompleteError) as error:
        raise NoForecastError(str(error)) from error
    if not work:
        raise NoForecastError(f"{directory}: nothing was metered on the last day")
    (outcomes,) = outcomes_of(run_all(work), 1)
    groups = [_forecast_of(change) for change in changes_of("then", outcomes, REGROUP)]
    return Forecast(groups, _covered_ms(work, int(since_s * 1_000)))


def _covered_ms(work: Sequence[Work], since_ms: int) -> int:
    """Return the length of the union of the file sets' times, in ms."""
    spans = sorted({(max(item.first_ts_ms, since_ms), item.last_ts_ms) for task in work for item in task.manifests})
    covered_ms, until_ms = 0, since_ms
    for begin_ms, end_ms in spans:
        covered_ms += max(end_ms - max(begin_ms, until_ms), 0)
        until_ms = max(until_ms, end_ms)
    return covered_ms


def _forecast_of(change: Change) -> GroupForecast:
    return GroupForecast(*(getattr(change, name) for name in GroupForecast._fields))


def _quota_file(quotas: Mapping[Entity, Mapping[str, float]]) -> QuotaFile:
    callbacks = {quota_type.value: DefaultQuotaCallback() for quota_type in _KEYS.values()}
    rates: dict[str, float] = {}
    for entity, values in quotas.items():
        parts = dict(entity)
        if "ip" in parts:
            if CONNECTION_RATE in values:
                rates[parts["ip"] or DEFAULT] = values[CONNECTION_RATE]
            continue
        user, client_id = (parts[kind] or DEFAULT if kind in parts else None for kind in ("user", "client-id"))
        named = ClientQuotaEntity(user, client_id, parts.get("user") is not None, parts.get("client-id") is not None)
        for key, value in values.items():
            if key in _KEYS:
                callbacks[_KEYS[key].value].update_quota(_KEYS[key], named, value)
    return QuotaFile("then", callbacks, rates)
