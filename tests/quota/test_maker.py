"""The number of groups is limited per user, or per address for clients without a user."""

import pytest

from quota.entity import ANONYMOUS, KafkaPrincipal
from quota.maker import NO_MAKER, Maker, maker_at, maker_of


@pytest.mark.parametrize(
    ("host", "network"),
    [
        pytest.param("192.0.2.7", "192.0.2.7", id="ipv4"),
        pytest.param("::ffff:192.0.2.7", "192.0.2.7", id="ipv4-met-by-an-ipv6-socket"),
        pytest.param("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64", id="ipv6"),
        pytest.param("2001:DB8:1:2::9", "2001:db8:1:2::/64", id="the-same-64"),
        pytest.param("fe80::1%eth0", "fe80::/64", id="with-a-zone"),
        pytest.param("", "", id="a-socket-without-address"),
    ],
)
def test_an_address_is_counted_by_its_network(host: str, network: str) -> None:
    """An IPv4 address counts by itself, also as an IPv4-mapped IPv6 address, and an IPv6 address by its /64 network."""
    assert maker_at("edge", host) == Maker("", "edge", network)


def test_a_user_has_one_share_wherever_it_comes_from() -> None:
    """A user has one share from all addresses, and a client without a user has that of its address."""
    here, there = maker_at("edge", "192.0.2.1"), maker_at("inside", "192.0.2.2")
    assert here.of_user("bob").share == there.of_user("bob").share == Maker("bob")
    assert here.of_user("bob").place == here == here.share
    assert here.share != there.share


def test_without_an_address_only_users_are_makers() -> None:
    """Without an address a user has a share of its own, and an anonymous client has none."""
    assert maker_of(ANONYMOUS) is NO_MAKER
    assert maker_of(KafkaPrincipal("User", "bob")) == Maker("bob")
    assert maker_of(KafkaPrincipal("Service", "ANONYMOUS")) == Maker("ANONYMOUS")
