"""Whom a quota is for. Part of `sluice.admin`, which users import it from; by itself it needs no connection to a broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"


@dataclass(frozen=True, slots=True)
class ClientQuotaEntity:
    """Whom a quota is for: a name for each type, None for the default entity. Types: `user`, `client-id`, `ip`."""

    parts: tuple[tuple[str, str | None], ...]

    @classmethod
    def of(cls, entries: Mapping[str, str | None]) -> Self:
        """Make one from a mapping of types to names."""
        return cls(tuple(sorted(entries.items())))

    @property
    def entries(self) -> dict[str, str | None]:
        """Types and names."""
        return dict(self.parts)
