"""Clients without a login, distinguished by the network they come from.

    [[listener]]
    address = "0.0.0.0:9092"
    principal_builder = "examples.principals.networks:NetworkPrincipals"

    [listener.principal_builder_settings]
    "10.1.0.0/16" = "warehouse"
    "10.2.0.0/16" = "web"
    "10.2.7.0/24" = "web-batch"       # the most specific network counts

A quota for the user `warehouse` then holds for all clients from 10.1.0.0/16 together. Who logged in keeps the name that the broker
accepted, and a client from elsewhere is ANONYMOUS.
"""

import ipaddress
from collections.abc import Mapping
from typing import Any

from sluice.principal import ANONYMOUS, AuthenticationContext, KafkaPrincipal, PrincipalBuilder


class NetworkPrincipals(PrincipalBuilder):
    """Users by login, else by network."""

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Take a table of network = user."""
        by_network = {ipaddress.ip_network(network): KafkaPrincipal("User", str(user)) for network, user in settings.items()}
        self._networks = sorted(by_network.items(), key=lambda item: item[0].prefixlen, reverse=True)

    def build(self, context: AuthenticationContext) -> KafkaPrincipal:
        """Return the user that logged in, else the one that stands for the client's network.

        Raises:
            ValueError: the login does not show a user.
        """
        if context.mechanism is not None:
            if context.name is None or context.delegation_token:
                raise ValueError("this login has no name")
            return KafkaPrincipal("User", context.name)
        address = ipaddress.ip_address(context.host)
        mapped = getattr(address, "ipv4_mapped", None) or address
        return next((principal for network, principal in self._networks if mapped in network), ANONYMOUS)
