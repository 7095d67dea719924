"""Addresses as operators write them."""

import pytest

from proxy.base.host_port import HostPort, read_host_port


@pytest.mark.parametrize(
    ("written", "host", "port"),
    [
        ("broker-1.example.org:9092", "broker-1.example.org", 9092),
        ("10.0.0.7:1", "10.0.0.7", 1),
        ("[::1]:65535", "::1", 65535),
        (" localhost:9092 ", "localhost", 9092),
        ("kafka_1:9092", "kafka_1", 9092),
    ],
)
def test_address(written: str, host: str, port: int) -> None:
    """A host name, an IPv4 address or a bracketed IPv6 address with a port is read, and prints as it was written."""
    address = read_host_port(written)
    assert address == (host, port)
    assert str(address) == written.strip()


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        ("localhost", '"localhost" has no port'),
        ("localhost:", '"localhost:" has no port from 1 to 65535'),
        ("localhost:0", '"localhost:0" has no port from 1 to 65535'),
        ("localhost:65536", '"localhost:65536" has no port from 1 to 65535'),
        ("localhost:-1", '"localhost:-1" has no port from 1 to 65535'),
        ("localhost:\uff19", '"localhost:\uff19" has no port from 1 to 65535'),
        ("::1:9092", '"::1:9092" has a host with colons outside brackets'),
        ("[localhost]:9092", '"[localhost]" is not an IPv6 address'),
        (":9092", "the host is empty"),
        ("a b:9092", '"a b" is neither a host name nor an IP address'),
        ("10.0.0.256:9092", '"10.0.0.256" is neither a host name nor an IP address'),
        ("-x:9092", '"-x" is neither a host name nor an IP address'),
        (9092, "not a text"),
    ],
)
def test_not_an_address(written: object, complaint: str) -> None:
    """An invalid address is refused with a message that says what is wrong."""
    with pytest.raises(ValueError, match=r".") as caught:
        read_host_port(written)
    assert str(caught.value) == complaint


@pytest.mark.parametrize(
    ("host", "wildcard", "loopback"),
    [
        ("0.0.0.0", True, False),
        ("::", True, False),
        ("127.0.0.9", False, True),
        ("::1", False, True),
        ("localhost", False, True),
        ("10.0.0.1", False, False),
    ],
)
def test_kinds_of_hosts(host: str, wildcard: bool, loopback: bool) -> None:
    """Wildcard and loopback hosts are recognized."""
    assert (HostPort(host, 1).is_wildcard, HostPort(host, 1).is_loopback) == (wildcard, loopback)
