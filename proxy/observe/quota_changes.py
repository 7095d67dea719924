"""Changes of stored quotas as the admin port receives them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec
from aiohttp import web

from quota.admin.messages import EntityKey

T = TypeVar("T")
Quotas = Mapping[EntityKey, Mapping[str, float]]


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The changes of one entity: a value for each key, null deletes it."""

    entity: dict[str, str | None]
    ops: dict[str, float | None]


class Change(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a request."""

    entries: list[Entry]
    validate_only: bool = False


async def body_of(request: web.Request, kind: type[T]) -> T:
    """Return the body of a request.

    Raises:
        web.HTTPBadRequest: it does not have the form.
    """
    try:
        return msgspec.json.decode(await request.read(), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise web.HTTPBadRequest(reason=f"invalid request: {' '.join(str(error).split())[:200]}") from None


def after_changes(quotas: Quotas, entries: Iterable[Entry]) -> Quotas:
    """Return all quotas as they would be after changes."""
    after = {frozenset(entity): (entity, dict(values)) for entity, values in quotas.items()}
    for entry in entries:
        entity = tuple(sorted(entry.entity.items()))
        _, values = after.setdefault(frozenset(entity), (entity, {}))
        for key, value in entry.ops.items():
            if value is None:
                values.pop(key, None)
            else:
                values[key] = value
    return {entity: values for entity, values in after.values() if values}
