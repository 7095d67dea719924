"""Addresses in the usual notation: `broker-1:9092`, `10.0.0.7:9092`, `[::1]:9092`."""

import functools
import ipaddress
import re
from typing import Final, NamedTuple

HOST_PORT_REMEDY: Final = "HOST:PORT with a port from 1 to 65535; an IPv6 address stands in brackets, as in [::1]:9092"
HOST_REMEDY: Final = "a host name or an IP address that clients can reach"

_NAME: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_.])?")


class HostPort(NamedTuple):
    """The address of a listener or a peer. The host has no brackets; port 0 means any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_wildcard(self) -> bool:
        """Whether this listens on every address of the host, so that it cannot be advertised."""
        return is_wildcard(self.host)

    @property
    def is_loopback(self) -> bool:
        """Whether only this host can reach it."""
        address = ip_of(self.host)
        return self.host == "localhost" if address is None else address.is_loopback


def read_host_port(text: object, *, port_min: int = 1) -> HostPort:
    """Return the address in `text`; `port_min` 0 allows any free port.

    Raises:
        ValueError: not HOST:PORT; the text says why.
    """
    if not isinstance(text, str):
        raise ValueError("not a text")
    host, colon, port = text.strip().rpartition(":")
    if not colon:
        raise ValueError(f'"{text}" has no port')
    if not (port.isascii() and port.isdecimal() and len(port) <= 5 and port_min <= int(port) <= 65_535):
        raise ValueError(f'"{text}" has no port from {port_min} to 65535')
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise ValueError(f'"{text}" has a host with colons outside brackets')
    return HostPort(read_host(host), int(port))


def read_host(text: object) -> str:
    """Return the host in `text` without brackets.

    Raises:
        ValueError: neither a host name nor an IP address.
    """
    if not isinstance(text, str) or not text.strip():
        raise ValueError("the host is empty")
    host = text.strip()
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        if not isinstance(ip_of(host), ipaddress.IPv6Address):
            raise ValueError(f'"{text}" is not an IPv6 address')
    if ip_of(host) is None and (_NAME.fullmatch(host) is None or _looks_like_ipv4(host)):
        raise ValueError(f'"{text}" is neither a host name nor an IP address')
    return host


@functools.lru_cache(maxsize=1024)
def ip_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return `host` as an IP address, or None when it is a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def is_wildcard(host: str) -> bool:
    """Whether `host` stands for every address of this host."""
    address = ip_of(host)
    return address is not None and address.is_unspecified


def _looks_like_ipv4(host: str) -> bool:
    # "10.0.0.256" would be valid as a name, and fail much later in the resolver
    return all(part.isdecimal() for part in host.split("."))
