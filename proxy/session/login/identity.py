"""Finds the principal of a client by the settings of its listener."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Final, NamedTuple

from protocol.sasl.oauthbearer import DEFAULT_CLAIM
from quota.entity import ANONYMOUS, KafkaPrincipal
from sluice.principal import AuthenticationContext, PrincipalBuilder

UNKNOWN: Final = "__unknown__"
_RESERVED: Final = re.compile(r"(?:_|%(?:25)*5F)_unknown__")
PRINCIPAL_NAME_MAX: Final = 4_096

Peer = tuple[str, int]


class TlsPeer(NamedTuple):
    """What TLS knows of a client."""

    name: str | None
    """The principal's name by the mapping rules, from the certificate's subject; None: no certificate."""
    certificate: bytes | None
    """The verified client certificate in DER form."""
    sni: str | None
    """The host name that the client requested."""


class IdentityRules:
    """How the clients of one listener are identified.

    Attributes:
        listener: its name.
        requires_login: SASL is configured, so only requests of a login pass before it has succeeded.
        claim: the claim of a bearer token that contains the user.
        mechanisms: the allowed mechanisms; None: all.
        on_plain_exposed: called once per login when a password crosses the network unencrypted.
        on_login_failed: called for each login that the broker refuses.
    """

    __slots__ = (
        "_builder",
        "_on_fault",
        "_rejects_unknown",
        "claim",
        "listener",
        "mechanisms",
        "on_login_failed",
        "on_plain_exposed",
        "requires_login",
    )

    def __init__(
        self,
        listener: str = "",
        *,
        requires_login: bool = False,
        claim: str = DEFAULT_CLAIM,
        mechanisms: frozenset[str] | None = None,
        rejects_unknown: bool = False,
        builder: PrincipalBuilder | None = None,
        on_fault: Callable[[str, Exception], None] | None = None,
        on_plain_exposed: Callable[[str, Peer], None] | None = None,
        on_login_failed: Callable[[Peer], None] | None = None,
    ) -> None:
        self.listener = listener
        self.requires_login = requires_login
        self.claim = claim
        self.mechanisms = mechanisms
        self._rejects_unknown = rejects_unknown
        self._builder = builder
        self._on_fault = on_fault
        self.on_plain_exposed = on_plain_exposed
        self.on_login_failed = on_login_failed

    def before_login(self, peer: Peer, tls: TlsPeer | None = None) -> KafkaPrincipal | None:
        """Return the principal of a client that has not logged in; None: it has to be disconnected."""
        if self._builder is None:
            return ANONYMOUS if tls is None or tls.name is None else KafkaPrincipal("User", escaped(tls.name))
        if tls is None:
            return self._built(AuthenticationContext(self.listener, "PLAINTEXT", *peer), "PLAINTEXT")
        context = AuthenticationContext(self.listener, "SSL", *peer, sni=tls.sni, certificate=tls.certificate, name=tls.name)
        return self._built(context, "SSL")

    def after_login(
        self, peer: Peer, mechanism: str, name: str | None, *, is_delegation_token: bool, tls: TlsPeer | None = None
    ) -> KafkaPrincipal | None:
        """Return the principal of a client that the broker authenticated; None: unknown, and it has to be disconnected."""
        if self._builder is not None:
            context = AuthenticationContext(
                self.listener,
                "SASL_PLAINTEXT" if tls is None else "SASL_SSL",
                *peer,
                sni=None if tls is None else tls.sni,
                certificate=None if tls is None else tls.certificate,
                mechanism=mechanism,
                name=name,
                delegation_token=is_delegation_token,
            )
            return self._built(context, mechanism)
        if name is None or is_delegation_token:
            return self._unknown(mechanism)
        return KafkaPrincipal("User", escaped(name))

    def _built(self, context: AuthenticationContext, how: str) -> KafkaPrincipal | None:
        assert self._builder is not None
        try:
            principal = self._builder.build(context)
            if not isinstance(principal, KafkaPrincipal) or not isinstance(principal.name, str):
                raise TypeError(f"a principal builder has to return a KafkaPrincipal, not {type(principal).__name__}")
            if not 0 < len(principal.name) <= PRINCIPAL_NAME_MAX:
                raise ValueError(f"a principal's name has 1 to {PRINCIPAL_NAME_MAX} characters")
        except Exception as error:  # noqa: BLE001 - the operator's class may raise anything
            if self._on_fault is not None:
                self._on_fault(self.listener, error)
            return self._unknown(how)
        return principal

    def _unknown(self, how: str) -> KafkaPrincipal | None:
        return None if self._rejects_unknown else KafkaPrincipal("User", f"{UNKNOWN}/{self.listener}/{how}")


def escaped(name: str) -> str:
    """Return a real name so that it never equals a name for unknown clients; different names stay different."""
    if _RESERVED.match(name) is None:
        return name
    return "%5F" + name[1:] if name[0] == "_" else "%25" + name[1:]


def is_unidentified(principal: KafkaPrincipal) -> bool:
    """Return whether a principal stands for all clients without a known user: without a login, or with one that does not show the user."""
    return principal.type == "User" and (principal.name == ANONYMOUS.name or principal.name.startswith(f"{UNKNOWN}/"))


def is_loopback(host: str) -> bool:
    """Return whether a client connects from this host."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


OPEN: Final = IdentityRules()
"""Every client is ANONYMOUS until its broker accepts a login."""
