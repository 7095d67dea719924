"""Which keys an entity may have, and of what type their values are.

Source: Kafka 3.8 `QuotaConfigs`, `DynamicConfig`.
"""

from enum import Enum
from typing import Final

from quota.admin.messages import IP, USER, EntityKey


class ValueType(Enum):
    """Of a quota's value, as it is stored; the name stands in Kafka's messages."""

    LONG = 9.223372036854775807e18
    INT = 2.0**31 - 1
    DOUBLE = 1.7976931348623157e308

    @property
    def is_whole(self) -> bool:
        """Whether fractions are refused."""
        return self is not ValueType.DOUBLE


CLIENT_KEYS: Final = {
    "producer_byte_rate": ValueType.LONG,
    "consumer_byte_rate": ValueType.LONG,
    "request_percentage": ValueType.DOUBLE,
    "controller_mutation_rate": ValueType.DOUBLE,
}
IP_KEYS: Final = {"connection_creation_rate": ValueType.INT}
SCRAM_KEYS: Final = frozenset({"SCRAM-SHA-256", "SCRAM-SHA-512"})
"""Credentials, which ZooKeeper keeps beside a user's quotas; never shown, never changed."""


def keys_of(entity: EntityKey) -> dict[str, ValueType]:
    """Return the keys that an entity may have."""
    return IP_KEYS if any(kind == IP for kind, _ in entity) else CLIENT_KEYS


def has_user(entity: EntityKey) -> bool:
    """Whether one part is a user."""
    return any(kind == USER for kind, _ in entity)
