"""The configuration keys that an entity may have, and the types of their values.

Source: Kafka 3.8 `QuotaConfigs`, `DynamicConfig`.
"""

from enum import Enum
from typing import Final

from quota.admin.messages import IP, USER, EntityKey


class ValueType(Enum):
    """Type of a quota's stored value; the name appears in Kafka's messages."""

    LONG = 9.223372036854775807e18
    INT = 2.0**31 - 1
    DOUBLE = 1.7976931348623157e308

    @property
    def is_whole(self) -> bool:
        """Whether the type refuses fractions."""
        return self is not ValueType.DOUBLE


CLIENT_KEYS: Final = {
    "producer_byte_rate": ValueType.LONG,
    "consumer_byte_rate": ValueType.LONG,
    "request_percentage": ValueType.DOUBLE,
    "controller_mutation_rate": ValueType.DOUBLE,
}
IP_KEYS: Final = {"connection_creation_rate": ValueType.INT}
SCRAM_KEYS: Final = frozenset({"SCRAM-SHA-256", "SCRAM-SHA-512"})
"""SCRAM credentials, which ZooKeeper keeps in the same node as a user's quotas. They are neither shown nor changed."""


def keys_of(entity: EntityKey) -> dict[str, ValueType]:
    """Return the keys that an entity may have."""
    return IP_KEYS if any(kind == IP for kind, _ in entity) else CLIENT_KEYS


def has_user(entity: EntityKey) -> bool:
    """Whether the entity has a user part."""
    return any(kind == USER for kind, _ in entity)
