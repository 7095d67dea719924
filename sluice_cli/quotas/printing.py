"""Formats entities and values for people."""

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
    """Return the sort key of an entity: by its types, with names before defaults."""
    return [(kind, name is None, name or "") for kind, name in reversed(entity.parts)]


def shown(entity: ClientQuotaEntity) -> str:
    """Return an entity in words."""
    parts = sorted(entity.parts, reverse=True)
    return ", ".join(
        f"default {_TITLES.get(kind, kind)}" if name is None else f"{_TITLES.get(kind, kind)} {name!r}" for kind, name in parts
    )


def values(of: Mapping[str, float]) -> str:
    """Return values with their keys."""
    return " ".join(f"{key}={number(of[key])}" for key in sorted(of))


def number(value: float) -> str:
    """Return a number, without a fraction when it is whole."""
    return str(int(value)) if math.isfinite(value) and value == int(value) else str(value)


def refused(text: str, code: int = 1) -> NoReturn:
    """Print an error in one line, and exit: 1 when the cluster or a check refused, 2 when the input is invalid."""
    click.echo(f"sluice quotas: {printable(text, 2_000)}", err=True)
    sys.exit(code)
