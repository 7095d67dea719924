"""Entities and values as lines for people."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import NoReturn

import click

from proxy.base.printable import printable
from sluice.admin import CLIENT_ID, IP, USER, ClientQuotaEntity

_TITLES = {USER: "user", CLIENT_ID: "client-id", IP: "ip"}


def order(entity: ClientQuotaEntity) -> list[tuple[str, bool, str]]:
    """Return by what entities are sorted: kind by kind, names before defaults."""
    return [(kind, name is None, name or "") for kind, name in reversed(entity.parts)]


def shown(entity: ClientQuotaEntity) -> str:
    """Return an entity in words."""
    parts = sorted(entity.parts, reverse=True)
    return ", ".join(
        f"default {_TITLES.get(kind, kind)}" if name is None else f"{_TITLES.get(kind, kind)} {name!r}" for kind, name in parts
    )


def values(of: Mapping[str, float]) -> str:
    """Return values by key."""
    return " ".join(f"{key}={number(of[key])}" for key in sorted(of))


def number(value: float) -> str:
    """Return a number, whole where it is."""
    return str(int(value)) if math.isfinite(value) and value == int(value) else str(value)


def refused(text: str, code: int = 1) -> NoReturn:
    """Say what is wrong in one line, and end: 1 where the cluster or a check said no, 2 where the input is not right."""
    click.echo(f"sluice quotas: {printable(text, 2_000)}", err=True)
    sys.exit(code)
