"""Everything that a custom principal builder needs: `from sluice.principal import AuthenticationContext, PrincipalBuilder`.

Source: KIP-189; Kafka 3.8 `KafkaPrincipalBuilder`, `AuthenticationContext`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quota.entity import ANONYMOUS, KafkaPrincipal

__all__ = ["ANONYMOUS", "AuthenticationContext", "KafkaPrincipal", "PrincipalBuilder"]


@dataclass(frozen=True, slots=True)
class AuthenticationContext:
    """Information on a client.

    Attributes:
        listener: name of its listener.
        protocol: `PLAINTEXT` or `SASL_PLAINTEXT`, by what the client did, not by the listener's settings.
        host, port: its address; behind a load balancer that sends PROXY headers, the address in the header.
        sni: the host name that it requested, with TLS.
        certificate: its verified certificate in DER form, with TLS.
        mechanism: the mechanism of its login, when the broker accepted one; None before, or without, SASL.
        name: the user of the login; None when the mechanism does not show it.
        delegation_token: whether the name is the id of a delegation token, not a user.
    """

    listener: str
    protocol: str
    host: str
    port: int
    sni: str | None = None
    certificate: bytes | None = None
    mechanism: str | None = None
    name: str | None = None
    delegation_token: bool = False


class PrincipalBuilder:
    """Base class of custom principal builders; one object per listener, called once per connection and once after each first login.

    It is called on the thread that serves all clients, so it must not block. Any exception means that the principal is unknown.
    """

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Receive `principal_builder_settings` of the listener, once, before any other call."""

    def build(self, context: AuthenticationContext) -> KafkaPrincipal:
        """Return the principal of the client for quotas."""
        raise NotImplementedError
