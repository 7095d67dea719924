"""The subject of a quota: types, principals, entities, and the encoded form of names.

Source: Kafka 3.8 `ClientQuotaType`, `ClientQuotaEntity`, `KafkaPrincipal`, `Sanitizer`.
"""

import enum
import functools
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from quota.errors import SanitizedNameError
from quota.names import NAME_BYTES_MAX, KeptName, kept_name

DEFAULT: Final = "<default>"
"""Name of the default entity, as Kafka prints it."""

UNLIMITED: Final = 9.223372036854775807e18
"""The bound that stands for "no quota": 2^63-1 as a double."""


class ClientQuotaType(enum.Enum):
    """Type of quota. The value is Kafka's name of the metrics group."""

    PRODUCE = "Produce"
    FETCH = "Fetch"
    REQUEST = "Request"
    CONTROLLER_MUTATION = "ControllerMutation"


class ConfigEntityType(enum.Enum):
    """Type of an entity part, as a callback receives it."""

    USER = "USER"
    CLIENT_ID = "CLIENT_ID"
    DEFAULT_USER = "DEFAULT_USER"
    DEFAULT_CLIENT_ID = "DEFAULT_CLIENT_ID"


@dataclass(frozen=True, slots=True)
class KafkaPrincipal:
    """An authenticated identity; prints as `User:alice`."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = KafkaPrincipal("User", "ANONYMOUS")


@dataclass(frozen=True, slots=True)
class EntityPart:
    """One part of an entity: its type and its name, decoded. A default part is named `<default>`."""

    type: ConfigEntityType
    name: str


@dataclass(frozen=True, slots=True)
class ClientQuotaEntity:
    """A user, a client-id, or both; names are raw.

    The name `<default>` means the default entity. A client whose name really is `<default>` has `literal_client_id=True`
    (and a user with `literal_user=True`); the flags are dropped for every other name, so that equal entities compare equal.
    """

    user: str | None = None
    client_id: str | None = None
    literal_user: bool = False
    literal_client_id: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "literal_user", self.literal_user and self.user == DEFAULT)
        object.__setattr__(self, "literal_client_id", self.literal_client_id and self.client_id == DEFAULT)

    @property
    def user_is_default(self) -> bool:
        """True for the default user."""
        return self.user == DEFAULT and not self.literal_user

    @property
    def client_id_is_default(self) -> bool:
        """True for the default client-id."""
        return self.client_id == DEFAULT and not self.literal_client_id

    @property
    def parts(self) -> tuple[EntityPart, ...]:
        """The one or two parts, the user first."""
        parts = []
        if self.user is not None:
            kind = ConfigEntityType.DEFAULT_USER if self.user_is_default else ConfigEntityType.USER
            parts.append(EntityPart(kind, self.user))
        if self.client_id is not None:
            kind = ConfigEntityType.DEFAULT_CLIENT_ID if self.client_id_is_default else ConfigEntityType.CLIENT_ID
            parts.append(EntityPart(kind, self.client_id))
        return tuple(parts)

    def __str__(self) -> str:
        return ", ".join(f"{part.type.value.lower().removeprefix('default_').replace('_', '-')} {part.name}" for part in self.parts)


def sanitize(name: str) -> str:
    """Percent-encode a name for metric tags and paths: everything but ASCII letters, digits, `.`, `-` and `_`.

    A lone surrogate becomes `%3F`, as in Java. Source: Kafka 3.8 `Sanitizer.sanitize`.
    """
    return _sanitized(name) if len(name) <= NAME_BYTES_MAX else _sanitized.__wrapped__(name)  # long names are not cached


def user_tag(name: str) -> str:
    """Return a user in the form used in tags: encoded, and a long name shortened."""
    tag = sanitize(kept_name(name))
    return tag if len(tag) <= NAME_BYTES_MAX else KeptName(tag)


@functools.lru_cache(maxsize=4096)
def _sanitized(name: str) -> str:
    return quote(name.encode("utf-8", "replace"), safe="._-").replace("~", "%7E")


_ESCAPE = re.compile(rb"%([0-9a-fA-F]{2})?")


def desanitize(encoded: str) -> str:
    """Decode a sanitized name; `+` is a space, bytes that are not UTF-8 become U+FFFD.

    Raises:
        SanitizedNameError: a `%` without two hexadecimal digits.
    """

    def decode_escape(match: re.Match[bytes]) -> bytes:
        if match[1] is None:
            raise SanitizedNameError(f"malformed escape in {encoded!r}")
        return bytes.fromhex(match[1].decode())

    raw = encoded.replace("+", " ").encode("utf-8", "replace")
    return _ESCAPE.sub(decode_escape, raw).decode("utf-8", "replace")
