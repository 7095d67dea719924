"""The entity of a quota. Import it from `sluice.admin`; this module needs no connection to a broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"


@dataclass(frozen=True, slots=True)
class ClientQuotaEntity:
    """The entity of a quota: a name for each type, None for the default entity. Types: `user`, `client-id`, `ip`."""

    parts: tuple[tuple[str, str | None], ...]

    @classmethod
    def of(cls, entries: Mapping[str, str | None]) -> Self:
        """Return an entity from a mapping of types to names."""
        return cls(tuple(sorted(entries.items())))

    @property
    def entries(self) -> dict[str, str | None]:
        """Names by type."""
        return dict(self.parts)
