"""Readers of configuration values that are more than a number or a choice."""

import os
import re
from pathlib import Path
from typing import Any, Final, Literal

from proxy.base.host_port import HostPort, is_wildcard, read_host, read_host_port
from proxy.base.networks import Networks, networks_of
from proxy.base.units import read_size, shown
from quota.connections.client_address import plain_address

FRAME_BYTES_MAX: Final = 2**31 - 1
"""A frame's length is a signed 32-bit number."""

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_AGE: Final = re.compile(r"([1-9][0-9]{0,6})([smhd])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
NAME_REMEDY: Final = "1 to 64 letters, digits, dots, dashes or underscores"
TOPIC_REMEDY: Final = "1 to 249 letters, digits, dots, dashes or underscores"
AGE_REMEDY: Final = 'a duration such as "90m", "36h" or "30d"'
PRINCIPALS_REMEDY: Final = 'a list such as ["User:ops", "User:monitoring"]'
_MECHANISM: Final = re.compile(r"[A-Z0-9_-]{1,64}")
_CLASS: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def read_listen(value: object) -> HostPort:
    """Return an address to listen on; port 0 is any free port."""
    return read_host_port(value, port_min=0)


def read_bootstrap(value: object) -> tuple[HostPort, ...]:
    """Return the addresses in a list or a comma-separated text, without duplicates, in order."""
    texts = value.split(",") if isinstance(value, str) else value
    if not isinstance(texts, list):
        raise ValueError(f"{shown(value)} is not a list of addresses")
    addresses = tuple(dict.fromkeys(read_host_port(text) for text in texts if text != ""))
    if not addresses:
        raise ValueError("names no address")
    if any(address.is_wildcard for address in addresses):
        raise ValueError("a wildcard address cannot be connected to")
    return addresses


def read_reachable_host(value: object) -> str:
    """Return a host that can be advertised."""
    host = read_host(value)
    if is_wildcard(host):
        raise ValueError(f"{shown(value)} names no machine")
    return host


def read_broker_ports(value: object) -> dict[int, int]:
    """Return node id to port; TOML's keys are texts."""
    if not isinstance(value, dict) or not value:
        raise ValueError(f"{shown(value)} is not a table of node id = port")
    ports = {_node_id(key): _port(key, port) for key, port in value.items()}
    if len(set(ports.values())) < len(value):
        raise ValueError("gives two brokers one port")
    return ports


def read_networks(value: object) -> Networks:
    """Return the networks in a list, without duplicates, in order."""
    if not isinstance(value, list):
        raise ValueError(f"{shown(value)} is not a list of networks")
    if not value:
        raise ValueError("names no network")
    return networks_of(value)


def read_ip_overrides(value: object) -> dict[str, int]:
    """Return the maximum number of connections by IP address or host name."""
    if not isinstance(value, dict):
        raise ValueError(f"{shown(value)} is not a table of address = number")
    overrides: dict[str, int] = {}
    for host, count in value.items():
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < 2**31:
            raise ValueError(f"{shown(count)} is not a number of connections for {host}")
        overrides[read_client_host(host)] = count
    if len(overrides) < len(value):
        raise ValueError("names one address twice")
    return overrides


def read_client_host(value: object) -> str:
    """Return an IP address in its usual short form, or a host name unchanged."""
    return plain_address(read_host(value))


def read_protocol(value: object) -> str:
    """Return the protocol of a listener in Kafka's spelling; case-insensitive."""
    name = value.upper() if isinstance(value, str) else ""
    if name == "AUTO":
        return "auto"
    if name not in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
        raise ValueError(f"{shown(value)} is not valid")
    return name


def read_mechanisms(value: object) -> tuple[str, ...]:
    """Return SASL mechanisms in a list, without duplicates, in order."""
    if not isinstance(value, list):
        raise ValueError(f"{shown(value)} is not a list of SASL mechanisms")
    if not value:
        raise ValueError("names no mechanism")
    for name in value:
        if not isinstance(name, str) or _MECHANISM.fullmatch(name) is None:
            raise ValueError(f"{shown(name)} is not the name of a SASL mechanism")
    return tuple(dict.fromkeys(value))


def read_claim_name(value: object) -> str:
    """Return the name of a claim, which needs no escapes in JSON."""
    if not isinstance(value, str) or not 0 < len(value) <= 256 or not value.isprintable() or '"' in value or "\\" in value:
        raise ValueError(f"{shown(value)} is not the name of a claim")
    return value


def read_principal_overrides(value: object) -> dict[str, int]:
    """Return the maximum number of connections by principal."""
    if not isinstance(value, dict):
        raise ValueError(f"{shown(value)} is not a table of principal = number")
    for principal, count in value.items():
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < 2**31:
            raise ValueError(f"{shown(count)} is not a number of connections for {principal}")
        if not all(principal.partition(":")[::2]):
            raise ValueError(f"{shown(principal)} is not a principal such as User:etl")
    return value


def read_principals(value: object) -> tuple[str, ...]:
    """Return principals in a list, without duplicates, in order."""
    if not isinstance(value, list):
        raise ValueError(f"{shown(value)} is not a list of principals")
    for principal in value:
        if not isinstance(principal, str) or not all(principal.partition(":")[::2]):
            raise ValueError(f"{shown(principal)} is not a principal such as User:ops")
    return tuple(dict.fromkeys(value))


def read_name(value: object) -> str:
    """Return the name of a listener, as used in metrics and logs."""
    if not isinstance(value, str) or _NAME.fullmatch(value) is None:
        raise ValueError(f"{shown(value)} is not a name")
    return value


def read_age(value: object) -> int:
    """Return a duration in seconds."""
    found = _AGE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"{shown(value)} is not a duration")
    return int(found[1]) * _SECONDS[found[2]]


def read_topic(value: object) -> str:
    """Return the name of a topic."""
    if not isinstance(value, str) or _TOPIC.fullmatch(value) is None or value in (".", ".."):
        raise ValueError(f"{shown(value)} is not the name of a topic")
    return value


def read_class_name(value: object) -> str:
    """Return `module:Class` unchanged; importing it is a later check."""
    if not isinstance(value, str) or _CLASS.fullmatch(value) is None:
        raise ValueError(f"{shown(value)} names no class")
    return value


def read_path(value: object) -> Path:
    """Return the path of a file, which need not exist."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError(f"{shown(value)} is not a path")
    return Path(value)


RUNTIME_DIR_BYTES_MAX: Final = 90
"""The address of a Unix socket has 108 bytes, and the socket a name behind that of its folder."""
RUNTIME_DIR_REMEDY: Final = f"the absolute path of a folder, of at most {RUNTIME_DIR_BYTES_MAX} bytes"


def read_runtime_dir(value: object) -> Path:
    """Return the path of the folder that supervisors meet in."""
    path = read_path(value)
    if not path.is_absolute() or len(os.fsencode(path)) > RUNTIME_DIR_BYTES_MAX:
        raise ValueError(f"{shown(value)} is relative, or too long for a Unix socket")
    return path


def read_frame_size(value: object) -> int:
    """Return a size that fits the length of a frame."""
    size = read_size(value)
    if size > FRAME_BYTES_MAX:
        raise ValueError(f"{shown(value)} is more than {FRAME_BYTES_MAX}")
    return size


def read_rate(value: object) -> float:
    """Return bytes per second: a whole number above 0."""
    return float(read_size(value))


def _node_id(key: Any) -> int:
    if not (isinstance(key, str) and key.isascii() and key.isdecimal() and int(key) < 2**31):
        raise ValueError(f"{shown(key)} is not a node id")
    return int(key)


def _port(key: Any, port: Any) -> int:
    if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65_535:
        raise ValueError(f"{shown(port)} is not a port for broker {key}")
    return port


WORKERS_MAX: Final = 64
WORKERS_REMEDY: Final = f'a whole number from 1 to {WORKERS_MAX}, or "auto"'


def read_workers(value: object) -> int | Literal["auto"]:
    """Return the number of worker processes.

    Raises:
        ValueError: it is neither a valid number nor "auto".
    """
    if value == "auto":
        return "auto"
    number = int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= WORKERS_MAX:
        raise ValueError(f"{shown(value)} is not valid")
    return number
