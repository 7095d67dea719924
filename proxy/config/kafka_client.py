"""TLS and login of Sluice's own Kafka clients (aiokafka, for topics that it writes or reads), as configured for the brokers."""

from __future__ import annotations

import ssl
from typing import Any

from protocol.sasl.mechanisms import OAUTHBEARER
from proxy.base.clock import wall_time_s
from proxy.config.sections.credentials import client_context
from proxy.config.sections.login import Credentials
from proxy.config.sections.tls import UpstreamTls
from proxy.config.sections.upstream import Upstream


def kafka_client_settings(upstream: Upstream) -> dict[str, Any]:
    """Return arguments for any aiokafka client. Certificates and secrets are read at each call, so call it for each new client.

    Raises:
        CredentialsError: a file or secret cannot be used.
    """
    parts = [part for part, there in (("SASL", upstream.credentials), ("SSL" if upstream.tls else "PLAINTEXT", True)) if there]
    settings: dict[str, Any] = {"bootstrap_servers": [str(address) for address in upstream.bootstrap], "security_protocol": "_".join(parts)}
    if upstream.tls is not None:
        settings["ssl_context"] = _context(upstream.tls)
    if upstream.credentials is not None:
        settings |= _login(upstream.credentials)
    return settings


def _login(credentials: Credentials) -> dict[str, Any]:
    secret = credentials.secret()
    if credentials.mechanism != OAUTHBEARER:
        password = secret.reveal()
        return {
            "sasl_mechanism": credentials.mechanism,
            "sasl_plain_username": credentials.username,
            "sasl_plain_password": password,
        }
    from aiokafka.abc import AbstractTokenProvider  # imported here, since only topics need it

    class TokenFile(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return credentials.secret().reveal()

    return {"sasl_mechanism": OAUTHBEARER, "sasl_oauth_token_provider": TokenFile()}


class _NamedContext(ssl.SSLContext):
    """Expects certificates for one name, whatever host is connected to; aiokafka has no setting for it."""

    server_name: str

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *arguments: Any, **named: Any) -> ssl.SSLObject:
        named["server_hostname"] = self.server_name
        return super().wrap_bio(incoming, outgoing, *arguments, **named)


def _context(tls: UpstreamTls) -> ssl.SSLContext:
    if tls.server_name is None:
        return client_context(tls.files(), verify=not tls.insecure_skip_verify, now_s=wall_time_s())
    context = client_context(tls.files(), verify=not tls.insecure_skip_verify, now_s=wall_time_s(), kind=_NamedContext)
    assert isinstance(context, _NamedContext)
    context.server_name = tls.server_name
    return context
