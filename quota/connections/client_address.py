"""Which addresses are counted together."""

import functools
import ipaddress
from typing import Final

SINGLE_ADDRESS_BITS: Final = 128
NETWORK_BITS: Final = 64
"""The IPv6 prefix that one household or machine usually has."""


@functools.lru_cache(maxsize=4096)
def plain_address(host: str) -> str:
    """Return an IP address in its usual short form, an IPv4-mapped IPv6 address as IPv4, without a zone.

    Text that is not an IP address is returned unchanged.
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    return str(getattr(address, "ipv4_mapped", None) or address)


@functools.lru_cache(maxsize=65_536)
def address_of(host: str) -> str | None:
    """Return the usual short form of an IP address in a setting or quota; None for a host name.

    Results are cached: parsing thousands of addresses at each change would delay every connection.
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return None
    return plain_address(host)


@functools.lru_cache(maxsize=4096)
def address_group(address: str, ipv6_prefix_bits: int) -> str:
    """Return the unit that an address is counted as: itself, or its IPv6 network of `ipv6_prefix_bits` bits."""
    if ":" not in address or ipv6_prefix_bits >= SINGLE_ADDRESS_BITS:
        return address
    return str(ipaddress.ip_network(f"{address}/{ipv6_prefix_bits}", strict=False))


def client_network(host: str) -> str:
    """Return the unit that counts as one client when connections are compared: an IPv4 address, or an IPv6 /64."""
    return address_group(plain_address(host), NETWORK_BITS)
