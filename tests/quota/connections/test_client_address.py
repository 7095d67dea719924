"""Client addresses in settings and quotas are recognized and normalized."""

import pytest

from quota.connections.client_address import address_of


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("0:0::1", "::1"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("etl.example", None),
        ("192.0.2", None),
        ("<default>", None),
    ],
)
def test_an_address_is_distinguished_from_a_name(host: str, address: str | None) -> None:
    """An address is read in its canonical short form, and a name is no address."""
    assert address_of(host) == address
