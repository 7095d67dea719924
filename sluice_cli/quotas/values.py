"""Parses entities from options, and quotas from KEY=VALUE."""

from __future__ import annotations

import math
from typing import NamedTuple

import click

from proxy.base.units import SIZE_REMEDY, read_size, shown
from quota.admin import keys
from quota.admin.keys import ValueType
from sluice.admin import CLIENT_ID, IP, USER, ClientQuotaEntity


class Named(NamedTuple):
    """The options that name an entity; a default entity has a flag."""

    user: str | None
    user_default: bool
    client_id: str | None
    client_id_default: bool
    ip: str | None
    ip_default: bool

    def parts(self) -> dict[str, str | None]:
        """Names by type.

        Raises:
            click.UsageError: both a name and the default are given, or an IP address together with a user or client-id.
        """
        parts: dict[str, str | None] = {}
        for kind, name, is_default in (
            (USER, self.user, self.user_default),
            (CLIENT_ID, self.client_id, self.client_id_default),
            (IP, self.ip, self.ip_default),
        ):
            if name is not None and is_default:
                raise click.UsageError(f"--{kind} and --{kind}-default exclude each other; write one of them")
            if name is not None or is_default:
                parts[kind] = name
        if IP in parts and len(parts) > 1:
            raise click.UsageError("--ip cannot be combined; leave out --user and --client-id")
        return parts

    def entity(self) -> ClientQuotaEntity:
        """The entity.

        Raises:
            click.UsageError: no entity is given.
        """
        parts = self.parts()
        if not parts:
            raise click.UsageError("no entity is named; write --user, --client-id or --ip, or one of their -default forms")
        return ClientQuotaEntity.of(parts)


def read_settings(settings: tuple[str, ...], entity: ClientQuotaEntity) -> dict[str, float | None]:
    """Parse KEY=VALUE arguments for an entity.

    Raises:
        click.UsageError: a key that the entity cannot have, or an invalid value.
    """
    if not settings:
        raise click.UsageError(f"no quota is given; write for example {keys_of(entity)[0]}={'20' if IP in entity.entries else '1MiB'}")
    values: dict[str, float | None] = {}
    for setting in settings:
        key, separator, text = setting.partition("=")
        if not separator:
            raise click.UsageError(f"{shown(setting)} is not a quota; write KEY=VALUE")
        check_key(key, entity)
        if key in values:
            raise click.UsageError(f"{key} is given twice; write it once")
        values[key] = _value(key, text, keys.keys_of(entity.parts)[key])
    return values


def check_key(key: str, entity: ClientQuotaEntity) -> None:
    """Refuse a key that an entity cannot have.

    Raises:
        click.UsageError: the entity cannot have the key.
    """
    if key not in keys_of(entity):
        raise click.UsageError(f"{shown(key)} is not a quota of this entity; write {', '.join(keys_of(entity))}")


def keys_of(entity: ClientQuotaEntity) -> tuple[str, ...]:
    """The keys that an entity may have."""
    return tuple(keys.keys_of(entity.parts))


def _value(key: str, text: str, value_type: ValueType) -> float:
    is_rate = value_type is ValueType.LONG
    try:
        if is_rate:
            return float(read_size(text))
        value = float(text)
    except ValueError:
        remedy = SIZE_REMEDY if is_rate else "a number above 0"
        raise click.UsageError(f"{key}: {shown(text)} is not valid; write {remedy}") from None
    if not math.isfinite(value) or value <= 0:
        raise click.UsageError(f"{key}: {shown(text)} is not above 0; to delete a quota, write sluice quotas delete")
    if value_type is ValueType.INT and value != int(value):
        raise click.UsageError(f"{key}: {shown(text)} is not a whole number; write connections per second, such as 20")
    return value
