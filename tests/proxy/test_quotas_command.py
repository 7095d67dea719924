"""`sluice quotas` checks its command line and explains which quota applies."""

import pytest
from click.testing import CliRunner

from proxy.quota_admin.precedence import ip_levels, levels
from sluice.admin import ClientQuotaEntity, QuotaAdmin
from sluice_cli.quotas.command import quotas

LEVELS = [
    {"user": "u", "client-id": "c"},
    {"user": "u", "client-id": None},
    {"user": "u"},
    {"user": None, "client-id": "c"},
    {"user": None, "client-id": None},
    {"user": None},
    {"client-id": "c"},
    {"client-id": None},
]


@pytest.mark.parametrize("removed", range(len(LEVELS) + 1))
def test_the_precedence_is_kafkas(removed: int) -> None:
    """The highest of Kafka's eight levels with a value wins, and without any value there is no limit."""
    table = {ClientQuotaEntity.of(parts): {"producer_byte_rate": float(at)} for at, parts in enumerate(LEVELS) if at >= removed}
    precedence = levels(table, "producer_byte_rate", "u", "c")
    assert [level.entity.entries for level in precedence] == LEVELS
    assert [level.value for level in precedence if level.wins] == ([float(removed)] if removed < len(LEVELS) else [])


def test_an_address_has_two_rungs() -> None:
    """The quota of an address is its own one, or else the default one."""
    table = {ClientQuotaEntity.of({"ip": None}): {"connection_creation_rate": 20.0}}
    assert [(level.value, level.wins) for level in ip_levels(table, "connection_creation_rate", "10.0.0.1")] == [
        (None, False),
        (20.0, True),
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["set", "--user", "a"], "no quota is given; write for example producer_byte_rate=1MiB"),
        (["set", "--ip", "10.0.0.1"], "write for example connection_creation_rate=20"),
        (["set", "producer_byte_rate=1"], "no entity is named; write --user, --client-id or --ip"),
        (["set", "--user", "a", "--ip", "10.0.0.1", "x=1"], "--ip cannot be combined; leave out --user and --client-id"),
        (["set", "--user", "a", "--user-default", "x=1"], "--user and --user-default exclude each other"),
        (["set", "--user", "a", "producer_byte_rate"], '"producer_byte_rate" is not a quota; write KEY=VALUE'),
        (
            ["set", "--user", "a", "connection_creation_rate=1"],
            '"connection_creation_rate" is not a quota of this entity; write producer_byte_rate',
        ),
        (["set", "--user", "a", "producer_byte_rate=10MBB"], 'producer_byte_rate: "10MBB" is not valid; write a whole number of bytes'),
        (["set", "--user", "a", "request_percentage=NaN"], 'request_percentage: "NaN" is not above 0'),
        (["set", "--user", "a", "request_percentage=0"], "to delete a quota, write sluice quotas delete"),
        (["set", "--ip", "10.0.0.1", "connection_creation_rate=1.5"], '"1.5" is not a whole number; write connections per second'),
        (["set", "--user", "a", "request_percentage=1", "request_percentage=2"], "request_percentage is given twice"),
        (["delete", "--user", "a", "bogus"], '"bogus" is not a quota of this entity'),
        (["explain"], "no entity is named"),
    ],
)
def test_what_was_typed_wrong_is_named(arguments: list[str], words: str) -> None:
    """A wrong command line ends with exit code 2 and a message, before any broker is asked."""
    result = CliRunner().invoke(quotas, [*arguments, "--bootstrap-server", "127.0.0.1:1"])
    assert result.exit_code == 2
    assert words in result.output


def test_a_cluster_that_does_not_answer_is_named() -> None:
    """An unreachable broker is named with exit code 1."""
    result = CliRunner().invoke(quotas, ["describe", "--bootstrap-server", "127.0.0.1:1"])
    assert result.exit_code == 1
    assert result.output.startswith("sluice quotas: 127.0.0.1:1: ")


@pytest.mark.parametrize("address", ["", "kafka", "kafka:0", "kafka:x", ":1"])
def test_what_is_no_address_is_refused(address: str) -> None:
    """A broker address without a valid host and port is refused."""
    with pytest.raises(ValueError, match="write HOST:PORT"):
        QuotaAdmin(address)
