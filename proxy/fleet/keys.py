"""The keys of a fleet, which its members derive from their common secret."""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

from proxy.config.problem import CONFIGURATION, ConfigProblems, Problem
from proxy.config.sections.credentials import CredentialsError
from proxy.config.sections.fleet import Fleet, read_fleet_key

KEY_BYTES = 32


class FleetKeys(NamedTuple):
    """The keys of one fleet.

    Attributes:
        messages: authenticates messages (HMAC-SHA256).
        digests: key of the digests of groups, so that no name of a client can be found from the messages.
        fleet: number of the fleet in messages; it depends on the name only, so that a member with another secret is noticed.
    """

    messages: bytes
    digests: bytes
    fleet: int


def fleet_keys(name: str, secret: bytes) -> FleetKeys:
    """Return the keys of the fleet `name` with this secret of 32 bytes or more."""
    return FleetKeys(
        _derived(name, secret, b"sluice messages"),
        _derived(name, secret, b"sluice digests"),
        int.from_bytes(blake2b(name.encode(), person=b"sluice fleet", digest_size=8).digest(), "little"),
    )


def _derived(name: str, secret: bytes, purpose: bytes) -> bytes:
    """Return a key for one purpose. A secret longer than a key of BLAKE2b is hashed first."""
    key = blake2b(secret, digest_size=64).digest()
    return blake2b(name.encode(), key=key, person=purpose[:16], digest_size=KEY_BYTES).digest()


def keys_of(fleet: Fleet) -> FleetKeys:
    """Return the keys of a configured fleet.

    Raises:
        ConfigProblems: the secret cannot be read any more.
    """
    try:
        return fleet_keys(fleet.name, read_fleet_key(fleet.secret_file))
    except CredentialsError as error:
        raise ConfigProblems([Problem(CONFIGURATION, f"fleet.{error.key}", error.problem, error.remedy)]) from None
