"""quotas.toml as a store's content."""

# ruff: noqa: E501 -- the lines that operators read are written here in one piece

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.config.problem import ConfigProblems
from proxy.quota_store.file.quota_file import read_quota_text
from proxy.quota_store.in_force import InForce, empty_table, in_force
from quota.entity import DEFAULT, UNLIMITED, ClientQuotaEntity, ClientQuotaType
from tests.support.problem_lines import without_place

PRODUCE, FETCH = ClientQuotaType.PRODUCE, ClientQuotaType.FETCH
REQUEST, MUTATION = ClientQuotaType.REQUEST, ClientQuotaType.CONTROLLER_MUTATION
RATE = 'write bytes per second: a whole number of bytes, such as 1048576, "1MiB" or "10MB"'
CONNECTIONS = "write connections per second, such as 20"
NUMBER = "write a number above 0, such as 50.0"
NAME = 'write a name, or "<default>" for clients without a quota of their own'


def read_quotas(data: bytes, file: str) -> InForce:
    """Return what is in force for a file."""
    return in_force(read_quota_text(data, file))


def complaints(text: str) -> list[str]:
    """Return the problems without the name of the file."""
    with pytest.raises(ConfigProblems) as caught:
        read_quotas(text.encode("utf-8", "surrogatepass"), "q")
    return without_place(caught.value.lines(), "q")


def test_every_kind_of_entity() -> None:
    """Users, client-ids, pairs and defaults are read, with bytes as numbers or with units."""
    table = read_quotas(
        b"""
        [[quota]]
        user = "alice"
        client-id = "etl"
        producer_byte_rate = 1048576
        consumer_byte_rate = "2MiB"
        request_percentage = 0.5
        [[quota]]
        user = "<default>"
        producer_byte_rate = "10MB"
        [[quota]]
        client-id = "<default>"
        consumer_byte_rate = 9223372036854775807
        controller_mutation_rate = 2.5
        [[quota]]
        user = "<default>"
        client-id = "<default>"
        consumer_byte_rate = 1
        """,
        "q",
    ).table
    assert table == {
        PRODUCE: {ClientQuotaEntity("alice", "etl"): 1_048_576.0, ClientQuotaEntity(DEFAULT, None): 10_000_000.0},
        FETCH: {
            ClientQuotaEntity("alice", "etl"): 2_097_152.0,
            ClientQuotaEntity(None, DEFAULT): UNLIMITED,
            ClientQuotaEntity(DEFAULT, DEFAULT): 1.0,
        },
        REQUEST: {ClientQuotaEntity("alice", "etl"): 0.5},
        MUTATION: {ClientQuotaEntity(None, DEFAULT): 2.5},
    }


def test_every_key_of_kafka_may_stand_alone() -> None:
    """Each of Kafka's quota keys is read."""
    content = read_quotas(
        b"""
        [[quota]]
        user = "alice"
        client-id = "etl"
        request_percentage = 50.0
        producer_byte_rate = 1048576
        [[quota]]
        client-id = "<default>"
        controller_mutation_rate = 5
        request_percentage = 0.5
        [[quota]]
        ip = "<default>"
        connection_creation_rate = 20
        [[quota]]
        ip = "10.0.0.1"
        connection_creation_rate = 200
        """,
        "q",
    )
    assert content.table[PRODUCE] == {ClientQuotaEntity("alice", "etl"): 1_048_576.0}
    assert content.table[REQUEST] == {ClientQuotaEntity("alice", "etl"): 50.0, ClientQuotaEntity(None, DEFAULT): 0.5}
    assert content.table[MUTATION] == {ClientQuotaEntity(None, DEFAULT): 5.0}
    assert content.connection_rates == {DEFAULT: 20, "10.0.0.1": 200}


def test_an_empty_file_sets_no_quota() -> None:
    """An empty file is valid and sets no quota."""
    assert read_quotas(b"", "q").table == empty_table() == {PRODUCE: {}, FETCH: {}, REQUEST: {}, MUTATION: {}}


def test_a_table_cannot_be_changed() -> None:
    """The returned table is read-only."""
    table = read_quotas(b"", "q").table
    with pytest.raises(TypeError):
        table[PRODUCE][ClientQuotaEntity("a")] = 1.0  # type: ignore[index]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('user = "a"\nproducer_byte_rate = 0', f"quota[1].producer_byte_rate: 0 is not above 0; {RATE}"),
        ('user = "a"\nproducer_byte_rate = -1', f"quota[1].producer_byte_rate: -1 is not above 0; {RATE}"),
        ('user = "a"\nproducer_byte_rate = nan', f"quota[1].producer_byte_rate: nan is not a whole number; {RATE}"),
        ('user = "a"\nproducer_byte_rate = inf', f"quota[1].producer_byte_rate: inf is not a whole number; {RATE}"),
        ('user = "a"\nproducer_byte_rate = 1e999', f"quota[1].producer_byte_rate: inf is not a whole number; {RATE}"),
        ('user = "a"\nproducer_byte_rate = 10.5', f"quota[1].producer_byte_rate: 10.5 is not a whole number; {RATE}"),
        ('user = "a"\nconsumer_byte_rate = "10 MBB"', f'quota[1].consumer_byte_rate: "10 MBB" is not a size; {RATE}'),
        ('user = "a"\nconsumer_byte_rate = true', f"quota[1].consumer_byte_rate: true is not a size; {RATE}"),
        ('user = "a"\nconsumer_byte_rate = 9223372036854775808', f"quota[1].consumer_byte_rate: 9223372036854775808 is more than 9223372036854775807; {RATE}"),
        ('user = ""\nproducer_byte_rate = 1', f'quota[1].user: "" is not a name; {NAME}'),
        ('client-id = 5\nproducer_byte_rate = 1', f"quota[1].client-id: 5 is not a name; {NAME}"),
        (f'user = "{"é" * 20_000}"\nproducer_byte_rate = 1', f"quota[1].user: is longer than 32767 bytes; {NAME}"),
        ("producer_byte_rate = 1", "quota[1].user: is missing; write user, client-id, both, or ip alone"),
        ('user = "a"', "quota[1].producer_byte_rate: is missing; write at least one of producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate"),
        ('ip = "10.0.0.1"', "quota[1].connection_creation_rate: is missing; write it"),
        ('client_id = "a"\nproducer_byte_rate = 1', "quota[1].client_id: is not a setting; did you mean client-id?"),
        ('user = "a"\nrequest_percentage = 0', f"quota[1].request_percentage: 0 is not above 0; {NUMBER}"),
        ('user = "a"\nrequest_percentage = -0.5', f"quota[1].request_percentage: -0.5 is not above 0; {NUMBER}"),
        ('user = "a"\nrequest_percentage = nan', f"quota[1].request_percentage: nan is not a number; {NUMBER}"),
        ('user = "a"\ncontroller_mutation_rate = "5"', f'quota[1].controller_mutation_rate: "5" is not a number; {NUMBER}'),
        ('ip = "<default>"\nconnection_creation_rate = true', f"quota[1].connection_creation_rate: true is not a whole number; {CONNECTIONS}"),
        ('ip = "<default>"\nconnection_creation_rate = 0.5', f"quota[1].connection_creation_rate: 0.5 is not a whole number; {CONNECTIONS}"),
        ('ip = "<default>"\nconnection_creation_rate = -1', f"quota[1].connection_creation_rate: -1 is not from 0 to 2147483647; {CONNECTIONS}"),
        ('user = "a"\nliteral-user = true\nproducer_byte_rate = 1', 'quota[1].literal-user: is only for who is really called "<default>"; leave it out'),
        ('user = "a"\nproducer_byte_rate = 1\n[[switch]]\ntarget = "everybody"\nmode = "off"', 'switch[1].target: "everybody" is nothing to switch; write "all", "listener:NAME" or "entity:user=NAME"'),
        ('user = "a"\nproducer_byte_rate = 1\n[[switch]]\ntarget = "all"\nmode = "on"', 'switch[1].mode: "on" is not valid; write "enforce", "observe" or "off"'),
        ('user = "a"\nproducer_byte_rate = 1\n[[switch]]\ntarget = "all"\nmode = "off"\n[[switch]]\ntarget = "all"\nmode = "off"', 'switch[2].target: "all" is defined above; write it once'),
        ('ip = "::ffff:10.0.0.1"\nconnection_creation_rate = 1\n[[quota]]\nip = "10.0.0.1"\nconnection_creation_rate = 1', "quota[2].ip: has the same entity as quota[1]; write one [[quota]] for both"),
        ('user = "a"\nconnection_creation_rate = 20', "quota[1].connection_creation_rate: does not apply to a user; write ip instead"),
        ('ip = "10.0.0.1"\nrequest_percentage = 20', "quota[1].request_percentage: does not apply to an ip; write user or client-id instead of ip"),
        ('ip = "::1"\nconnection_creation_rate = 1\n[[quota]]\nip = "0:0::1"\nconnection_creation_rate = 1', "quota[2].ip: has the same entity as quota[1]; write one [[quota]] for both"),
        ('ip = "10.0.0.1"\nproducer_byte_rate = 20', "quota[1].producer_byte_rate: does not apply to an ip; write user or client-id instead of ip"),
        ('ip = "10.0.0.1"\nuser = "a"\nproducer_byte_rate = 20', "quota[1].ip: cannot stand beside user; write it in a [[quota]] of its own"),
        ('ip = "10.0.0.256"\nproducer_byte_rate = 20', 'quota[1].ip: "10.0.0.256" is neither a host name nor an IP address; write an IP address, a host name or "<default>"'),
        ('user = "a"\nproducer_byte_rate = 1\n[[quota]]\nuser = "a"\nconsumer_byte_rate = 1', "quota[2].user: has the same entity as quota[1]; write one [[quota]] for both"),
        ('user = "a"\nproducer_byte_rate = 1\n[quotas]', "quotas: is not known here; write every quota under [[quota]]"),
        ('user = "a"\nuser = "b"', "is not TOML: Cannot overwrite a value (at line 3, column 11)"),
    ],
)  # fmt: skip
def test_one_clear_line(text: str, line: str) -> None:
    """Each problem is one line with the quota, the key, what is wrong, and what to write."""
    assert complaints(f"[[quota]]\n{text}\n") == [line]


@pytest.mark.parametrize("text", ["quota = 5", "[quota]\nuser = 'a'", "quota = [1]"])
def test_quotas_are_a_list_of_tables(text: str) -> None:
    """Quotas that are no list of tables are refused with one line."""
    assert complaints(text) == ["quota: is not a list of tables; write [[quota]]"]


def test_what_only_the_api_sets_is_read_too() -> None:
    """Values that only Kafka's API can set are read."""
    text = b"""
        [[quota]]
        user = "<default>"
        literal-user = true
        client-id = "<default>"
        producer_byte_rate = 1235.0000001
        request_percentage = inf
        [[quota]]
        user = "<default>"
        producer_byte_rate = 7
        [[switch]]
        target = "entity:user=alice"
        mode = "observe"
        """
    content = read_quota_text(text, "q")
    literal = (("client-id", None), ("user", "<default>"))
    assert content.quotas == {
        literal: {"producer_byte_rate": 1235.0000001, "request_percentage": math.inf},
        (("user", None),): {"producer_byte_rate": 7.0},
    }
    assert content.switches == {"entity:user=alice": "observe"}
    table = in_force(content).table
    assert table[PRODUCE] == {ClientQuotaEntity(DEFAULT, DEFAULT, literal_user=True): 1235.0000001, ClientQuotaEntity(DEFAULT): 7.0}
    assert table[REQUEST] == {ClientQuotaEntity(DEFAULT, DEFAULT, literal_user=True): UNLIMITED}
    low = b'[[quota]]\nuser = "a"\nproducer_byte_rate = 0\nrequest_percentage = -0.5\n'
    with pytest.raises(ConfigProblems):
        read_quota_text(low, "q")
    assert read_quota_text(low, "q", any_sign=True).quotas == {(("user", "a"),): {"producer_byte_rate": 0.0, "request_percentage": -0.5}}


def test_all_problems_at_once() -> None:
    """All invalid quotas are reported together."""
    lines = complaints("".join(f'[[quota]]\nuser = "u{n}"\nproducer_byte_rate = {n - 2}\n' for n in range(1, 5)) + "[[quota]]\n")
    assert [line.split(":")[0] for line in lines] == ["quota[1].producer_byte_rate", "quota[2].producer_byte_rate", "quota[5].user"]


@given(st.binary(max_size=300) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_a_table_or_problems(data: bytes) -> None:
    """Any bytes give a table or one-line problems."""
    lines: list[str] = []
    try:
        assert set(read_quotas(data, "q").table) == set(ClientQuotaType)
    except ConfigProblems as problems:
        lines = problems.lines()
    assert not [line for line in lines if "\n" in line or "\x1b" in line]
