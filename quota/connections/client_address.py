"""Which addresses count together."""

import functools
import ipaddress
from typing import Final

SINGLE_ADDRESS_BITS: Final = 128
NETWORK_BITS: Final = 64
"""What one household or machine usually has of IPv6."""


@functools.lru_cache(maxsize=4096)
def plain_address(host: str) -> str:
    """Return an address in its usual short form; an IPv4 address that an IPv6 socket met is the IPv4 address, and no zone counts.

    What is no address comes back as it is.
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    return str(getattr(address, "ipv4_mapped", None) or address)


@functools.lru_cache(maxsize=65_536)
def address_of(host: str) -> str | None:
    """Return the usual short form of an address that stands in a setting or a quota; None for a name.

    Remembered: to parse thousands of them at each change would hold up every connection.
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return None
    return plain_address(host)


@functools.lru_cache(maxsize=4096)
def address_group(address: str, ipv6_prefix_bits: int) -> str:
    """Return what a plain address is counted as: itself, or the IPv6 network of so many bits that it is in."""
    if ":" not in address or ipv6_prefix_bits >= SINGLE_ADDRESS_BITS:
        return address
    return str(ipaddress.ip_network(f"{address}/{ipv6_prefix_bits}", strict=False))


def client_network(host: str) -> str:
    """Return what counts as one client where many connections are weighed against each other: an IPv4 address, or an IPv6 /64."""
    return address_group(plain_address(host), NETWORK_BITS)
