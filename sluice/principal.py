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
    """What is known of a client.

    Attributes:
        listener: name of the listener that it came to.
        protocol: `PLAINTEXT` or `SASL_PLAINTEXT`: what the client did, not what the listener declares.
        host, port: where it comes from; behind a load balancer that sends PROXY headers, the address in them.
        sni: the host name that it asked for, with TLS.
        certificate: its verified certificate in DER form, with TLS.
        mechanism: how it logged in, on the broker's word; None before, or without, SASL.
        name: as whom; None when the mechanism does not show it.
        delegation_token: the name is the id of a delegation token, not a user.
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
    """Base of custom principal builders; one object per listener, called once per connection and once after each first login.

    It is called on the thread that serves all clients: look names up beforehand. Whatever it raises counts as "unknown".
    """

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Take `principal_builder_settings` of the listener, once, before anything else."""

    def build(self, context: AuthenticationContext) -> KafkaPrincipal:
        """Return who the client is for quotas."""
        raise NotImplementedError
