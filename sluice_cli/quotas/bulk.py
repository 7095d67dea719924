"""Differences between a quota file and a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from sluice.admin import ClientQuotaAlteration, ClientQuotaEntity
from sluice_cli.quotas.printing import number, order, shown

BATCH_ENTRIES: Final = 1_000
"""Maximum of entries in a request to Sluice."""
LINES_SHOWN: Final = 200

Quotas = Mapping[ClientQuotaEntity, Mapping[str, float]]


class Difference(NamedTuple):
    """One value that differs; None means no value."""

    entity: ClientQuotaEntity
    key: str
    there: float | None
    wanted: float | None

    @property
    def is_removal(self) -> bool:
        """Whether the value is removed."""
        return self.wanted is None

    def __str__(self) -> str:
        if self.there is None:
            return f"+ {shown(self.entity)}: {self.key}={_text(self.wanted)}"
        if self.wanted is None:
            return f"- {shown(self.entity)}: {self.key}={_text(self.there)}"
        return f"~ {shown(self.entity)}: {self.key}={_text(self.there)} -> {_text(self.wanted)}"


def differences(there: Quotas, wanted: Quotas) -> list[Difference]:
    """Return the changes that turn `there` into `wanted`, entity by entity."""
    found = []
    for entity in sorted({*there, *wanted}, key=order):
        old, new = there.get(entity, {}), wanted.get(entity, {})
        found += [Difference(entity, key, old.get(key), new.get(key)) for key in sorted({*old, *new}) if old.get(key) != new.get(key)]
    return found


def alterations(of: Iterable[Difference]) -> list[ClientQuotaAlteration]:
    """Return one alteration for each entity."""
    ops: dict[ClientQuotaEntity, dict[str, float | None]] = {}
    for difference in of:
        ops.setdefault(difference.entity, {})[difference.key] = difference.wanted
    return [ClientQuotaAlteration(entity, changes) for entity, changes in ops.items()]


def batches(of: list[ClientQuotaAlteration]) -> Iterator[list[ClientQuotaAlteration]]:
    """Yield alterations in batches of one request."""
    for begin in range(0, len(of), BATCH_ENTRIES):
        yield of[begin : begin + BATCH_ENTRIES]


def result_of(there: Quotas, changes: Iterable[Difference]) -> dict[ClientQuotaEntity, dict[str, float]]:
    """Return the quotas after the changes."""
    after = {entity: dict(values) for entity, values in there.items()}
    for entity, key, _, wanted in changes:
        values = after.setdefault(entity, {})
        if wanted is None:
            values.pop(key, None)
        else:
            values[key] = wanted
    return {entity: values for entity, values in after.items() if values}


def lines_of(of: list[Difference]) -> Iterator[str]:
    """Yield a line for each, up to `LINES_SHOWN`."""
    yield from map(str, of[:LINES_SHOWN])
    if len(of) > LINES_SHOWN:
        yield f"... and {len(of) - LINES_SHOWN} more"


def counted(changes: list[Difference]) -> str:
    """Return the number of changes in words."""
    entities = len({difference.entity for difference in changes})
    return f"{many(len(changes), 'value', 'values')} of {many(entities, 'entity', 'entities')}"


def many(count: int, one: str, more: str) -> str:
    """Return a number with the singular or plural of a word."""
    return f"{count:,} {one if count == 1 else more}"


def _text(value: float | None) -> str:
    return "-" if value is None else number(value)
