"""Targets and limits of quotas in the terms of KIP-422: `from sluice.quota_targets import UserQuotaTarget, QuotaLimit`."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol, Self

from quota.entity import ClientQuotaType

__all__ = [
    "DEFAULT",
    "ClientQuotaTarget",
    "ClientQuotaType",
    "QuotaLimit",
    "QuotaTarget",
    "QuotaTargetType",
    "UserAndClientIdQuotaTarget",
    "UserQuotaTarget",
]

DEFAULT: Final = None
"""In place of a name: the default entity, for all without a quota of their own."""
INT64_MAX: Final = 2**63 - 1
KEYS: Final = {
    ClientQuotaType.PRODUCE: "producer_byte_rate",
    ClientQuotaType.FETCH: "consumer_byte_rate",
    ClientQuotaType.REQUEST: "request_percentage",
    ClientQuotaType.CONTROLLER_MUTATION: "controller_mutation_rate",
}


class QuotaTargetType(enum.Enum):
    """Type of a target."""

    CLIENT = "client"
    USER = "user"
    USER_AND_CLIENT_ID = "user and client-id"


class QuotaTarget(Protocol):
    """The target of a quota."""

    @property
    def target_type(self) -> QuotaTargetType:
        """The type of the target."""

    @property
    def entries(self) -> dict[str, str | None]:
        """Names by type, as for an entity."""


@dataclass(frozen=True, slots=True)
class ClientQuotaTarget:
    """A client-id, or the default client-id."""

    client_id: str | None

    @property
    def target_type(self) -> QuotaTargetType:
        """A client-id."""
        return QuotaTargetType.CLIENT

    @property
    def entries(self) -> dict[str, str | None]:
        """Names by type, as for an entity."""
        return {"client-id": self.client_id}


@dataclass(frozen=True, slots=True)
class UserQuotaTarget:
    """A user, or the default user."""

    user: str | None

    @property
    def target_type(self) -> QuotaTargetType:
        """A user."""
        return QuotaTargetType.USER

    @property
    def entries(self) -> dict[str, str | None]:
        """Names by type, as for an entity."""
        return {"user": self.user}


@dataclass(frozen=True, slots=True)
class UserAndClientIdQuotaTarget:
    """A client-id of a user; either may be the default."""

    user: str | None
    client_id: str | None

    @property
    def target_type(self) -> QuotaTargetType:
        """Both."""
        return QuotaTargetType.USER_AND_CLIENT_ID

    @property
    def entries(self) -> dict[str, str | None]:
        """Names by type, as for an entity."""
        return {"user": self.user, "client-id": self.client_id}


@dataclass(frozen=True, slots=True)
class QuotaLimit:
    """A limit: bytes per second, percent of a thread, or mutations per second; a whole number above 0, as in the KIP."""

    quota_type: ClientQuotaType
    value: int

    def __post_init__(self) -> None:
        if isinstance(self.value, bool) or not isinstance(self.value, int) or not 0 < self.value <= INT64_MAX:
            raise ValueError(f"{self.value!r} is not a limit; write a whole number from 1 to {INT64_MAX}")

    @property
    def key(self) -> str:
        """The configuration key of the limit."""
        return KEYS[self.quota_type]

    @classmethod
    def all_of(cls, values: Mapping[str, float]) -> list[Self]:
        """Return the limits for the values of an entity; fractions are cut, but a value below 1 becomes 1."""
        return [cls(quota_type, max(1, int(values[key]))) for quota_type, key in KEYS.items() if key in values]
