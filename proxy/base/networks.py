"""Networks in the usual notation, `10.0.0.0/8`, and membership of addresses."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Final

from proxy.base.host_port import ip_of
from proxy.base.units import shown
from quota.connections.client_address import plain_address

NETWORKS_REMEDY: Final = 'a list such as ["10.0.0.0/8", "fd00::/8", "192.0.2.7"]'

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_MAPPED: Final = ipaddress.IPv6Network("::ffff:0:0/96")


class Networks(tuple[Network, ...]):
    """A set of networks; `in` takes an IP address as text. An IPv4-mapped IPv6 address counts as IPv4."""

    __slots__ = ()

    def __contains__(self, host: object) -> bool:
        address = ip_of(plain_address(str(host)))
        return address is not None and any(address in network for network in self)


def network_of(text: object) -> Network:
    """Return the network in `text`; a single address is a network of one.

    Raises:
        ValueError: not a network; the text says why, and suggests the intended one where it can.
    """
    try:
        if not isinstance(text, str) or "%" in text:
            raise ValueError
        interface = ipaddress.ip_interface(text.strip())
    except ValueError:
        raise ValueError(f"{shown(text)} is not a network") from None
    network = interface.network
    if isinstance(network, ipaddress.IPv6Network) and network.subnet_of(_MAPPED):
        inner = ipaddress.IPv4Network((int(network.network_address) & 0xFFFF_FFFF, network.prefixlen - 96))
        raise ValueError(f"{shown(text)} is the IPv4 network {inner}, and never seen as an IPv6 one")
    if interface.ip != network.network_address:
        raise ValueError(f"{shown(text)} is an address inside {network}, not a network")
    return network


def networks_of(texts: Iterable[object]) -> Networks:
    """Return networks without duplicates, in order."""
    return Networks(dict.fromkeys(network_of(text) for text in texts))
