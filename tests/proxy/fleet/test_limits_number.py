"""The number with which members compare their limits on connections."""

from pathlib import Path

import pytest

from proxy.fleet.comparison.limits_number import limits_number
from tests.support.config_folder import load

MINIMAL = '[upstream]\nbootstrap = ["127.0.0.1:9092"]\n[[listener]]\naddress = "127.0.0.1:9192"\n'
FLEET = '[fleet]\nname = "edge"\nsecret_file = "secret"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a secret."""
    (tmp_path / "secret").write_text("s" * 32)
    (tmp_path / "secret").chmod(0o600)
    return tmp_path


def number(folder: Path, limits: str, fleet: str = f"{FLEET}connections = true\n") -> int:
    """Return the number with these lines of [connections]."""
    return limits_number(load(folder, f"{MINIMAL}{fleet}[connections]\n{limits}\n"))


@pytest.mark.parametrize("fleet", ["", FLEET], ids=["no-fleet", "not-shared"])
def test_a_member_that_shares_no_connections_has_the_number_zero(folder: Path, fleet: str) -> None:
    """Without a fleet or without connections = true the number is 0, whatever the limits."""
    assert number(folder, "max_connections_per_ip = 5", fleet) == 0


@pytest.mark.parametrize(
    "limits",
    [
        "max_connections_per_ip = 5",
        "max_connection_creation_rate = 5",
        "max_connections_per_principal = 5",
        'overrides = { "10.0.0.7" = 5 }',
        'principal_overrides = { "User:etl" = 5 }',
        "ipv6_prefix_bits = 64",
    ],
)
def test_each_shared_limit_changes_the_number(folder: Path, limits: str) -> None:
    """Another limit gives another number above 0; the same limits give the same."""
    assert number(folder, limits) == number(folder, limits) > 0
    assert number(folder, limits) != number(folder, "")


def test_limits_of_the_process_are_not_compared(folder: Path) -> None:
    """The number of connections of the process, which each member counts alone, may differ."""
    assert number(folder, "max_connections = 50\nmax_failed_logins_per_ip = 3") == number(folder, "")
