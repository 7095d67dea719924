"""Networks as operators write them, and whether an address is in one."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.base.networks import network_of, networks_of

BALANCERS = networks_of(["10.0.0.0/8", "192.0.2.7", "2001:db8::/32"])


@pytest.mark.parametrize(
    ("host", "inside"),
    [
        ("10.255.0.1", True),
        ("11.0.0.1", False),
        ("192.0.2.7", True),
        ("192.0.2.8", False),
        ("::ffff:10.1.2.3", True),
        ("::ffff:11.1.2.3", False),
        ("2001:db8::1", True),
        ("2001:db9::1", False),
        ("::1", False),
        ("a-name", False),
    ],
)
def test_who_is_in_a_network(host: str, *, inside: bool) -> None:
    """IPv4, IPv6 and IPv4-mapped addresses are matched against networks and single addresses."""
    assert (host in BALANCERS) is inside


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("10.0.0.1/8", '"10.0.0.1/8" is an address inside 10.0.0.0/8, not a network'),
        ("2001:db8::1/32", '"2001:db8::1/32" is an address inside 2001:db8::/32, not a network'),
        ("::ffff:10.0.0.0/104", '"::ffff:10.0.0.0/104" is the IPv4 network 10.0.0.0/8, and never seen as an IPv6 one'),
        ("10.0.0.0/33", '"10.0.0.0/33" is not a network'),
        ("balancer.example.org", '"balancer.example.org" is not a network'),
        ("fe80::1%eth0", '"fe80::1%eth0" is not a network'),
        ("", '"" is not a network'),
        (7, "7 is not a network"),
        (True, "true is not a network"),
    ],
)
def test_what_is_no_network(text: object, message: str) -> None:
    """An invalid network is refused with a message that says what is wrong."""
    with pytest.raises(ValueError, match="network") as caught:
        network_of(text)
    assert str(caught.value) == message


def test_each_network_once() -> None:
    """Duplicate networks are dropped, and the order of the others is kept."""
    assert list(networks_of(["192.0.2.0/24", "10.0.0.0/8", "192.0.2.0/24"])) == [network_of("192.0.2.0/24"), network_of("10.0.0.0/8")]


@given(st.ip_addresses(), st.data())
def test_an_address_is_in_its_own_network(address: ipaddress.IPv4Address | ipaddress.IPv6Address, data: st.DataObject) -> None:
    """An address is in each network of any prefix that is made from it."""
    plain = getattr(address, "ipv4_mapped", None) or address
    prefix = data.draw(st.integers(0, plain.max_prefixlen))
    network = ipaddress.ip_network((plain, prefix), strict=False)
    if network.version == 4 or not network.subnet_of(ipaddress.IPv6Network("::ffff:0:0/96")):
        assert str(address) in networks_of([str(network)])
