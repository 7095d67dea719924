"""Switches of enforcement: how targets are written, and which one holds for whom."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.enforcement.switches import SWITCHES_MAX, SwitchError, Switches, SwitchMode, Target, entity_target, read_mode, read_target
from quota.entity import DEFAULT

NAMES = st.none() | st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)


@pytest.mark.parametrize(
    "text",
    [
        "all",
        "listener:tenants",
        "entity:user=alice",
        "entity:user=alice,client-id=etl",
        "entity:user=<default>",
        "entity:user=<default>,client-id=<default>",
        "entity:client-id=%3Cdefault%3E",
        "entity:user=CN%3Da%2COU%3Db",
        "entity:ip=192.0.2.7",
        "entity:ip=<default>",
    ],
)
def test_a_target_in_its_own_form_stays_as_it_is(text: str) -> None:
    """What is read is written the same."""
    assert str(read_target(text)) == text


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("entity:client-id=etl,user=alice", "entity:user=alice,client-id=etl"),
        ("entity:user=CN=a b", "entity:user=CN%3Da%20b"),
        ("entity:user=a+b", "entity:user=a%2Bb"),
        ("entity:user=%61lice", "entity:user=alice"),
        ("entity:ip=::ffff:192.0.2.7", "entity:ip=192.0.2.7"),
        ("entity:ip=2001:DB8:0::7", "entity:ip=2001:db8::7"),
    ],
)
def test_other_ways_to_write_a_target(text: str, same: str) -> None:
    """The user stands first, names are percent-encoded, addresses are in their short form: one target has one form."""
    assert str(read_target(text)) == same


@given(user=NAMES, client_id=NAMES)
def test_every_name_can_be_written(user: str | None, client_id: str | None) -> None:
    """Whatever a user or client-id is called, its target is read back as it was."""
    target = entity_target((("user", user), ("client-id", client_id)))
    assert read_target(str(target)) == target


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ALL",
        "listener:",
        "listener:a b",
        "entity:",
        "entity:user",
        "entity:user=",
        "entity:group=a",
        "entity:user=a,user=b",
        "entity:user=a,ip=192.0.2.7",
        "entity:ip=etl.example.org",
        "entity:user=100%",
        "entity:user=%FF",
        "entity:user=" + "a" * 4_097,
        "user=alice",
    ],
)
def test_what_is_no_target(text: str) -> None:
    """Anything else is refused, and the line says what to write."""
    with pytest.raises(SwitchError, match=r"; .*write"):
        read_target(text)


def test_modes() -> None:
    """There are three; another is refused with their names."""
    assert [read_mode(mode.value) for mode in SwitchMode] == list(SwitchMode)
    with pytest.raises(SwitchError, match="enforce, observe or off"):
        read_mode("on")


PRECEDENCE = [
    "entity:user=a,client-id=c",
    "entity:user=a,client-id=<default>",
    "entity:user=a",
    "entity:user=<default>,client-id=c",
    "entity:user=<default>,client-id=<default>",
    "entity:user=<default>",
    "entity:client-id=c",
    "entity:client-id=<default>",
    "listener:edge",
    "all",
]


def test_the_most_specific_wins() -> None:
    """An entity before the listener before all; entities in Kafka's order of precedence."""
    for better, worse in pairwise(PRECEDENCE):
        both = Switches({worse: "off", better: "observe"})
        assert both.of_client("edge", "a", "c") is SwitchMode.OBSERVE, (better, worse)
        assert Switches({worse: "off"}).of_client("edge", "a", "c") is SwitchMode.OFF, worse


@given(st.sets(st.sampled_from(PRECEDENCE)), st.sampled_from(["a", "b"]), st.sampled_from(["c", "d", ""]))
def test_the_winner_is_the_first_level_that_fits(levels: set[str], user: str, client_id: str) -> None:
    """For any set of switches: the winner is the first level of precedence that is there and fits; without one the configuration counts."""
    fits = [
        level for level in PRECEDENCE if level in levels and ("=a" not in level or user == "a") and ("=c" not in level or client_id == "c")
    ]
    switches = Switches({level: ("observe" if fits and level == fits[0] else "off") for level in levels})
    assert switches.of_client("edge", user, client_id) is (SwitchMode.OBSERVE if fits else None)


def test_who_is_not_meant() -> None:
    """A switch holds for no other client: another listener, user, client-id or address."""
    switches = Switches({"listener:edge": "off", "entity:user=a": "off", "entity:client-id=c": "off", "entity:ip=192.0.2.7": "off"})
    assert switches.of_client("inside", "b", "d") is None
    assert switches.of_address("inside", "192.0.2.8") is None
    assert switches.of_listener("inside") is None


def test_a_client_named_default_is_not_the_default() -> None:
    """The default entity is not a name: `%3Cdefault%3E` is one client, `<default>` is every client without a switch of its own."""
    switches = Switches({"entity:client-id=%3Cdefault%3E": "off", "entity:client-id=<default>": "observe"})
    assert switches.of_client("edge", "a", DEFAULT) is SwitchMode.OFF
    assert switches.of_client("edge", "a", "c") is SwitchMode.OBSERVE


def test_addresses() -> None:
    """Connections look for their address, the default address, the listener, all."""
    table = {"entity:ip=192.0.2.7": "observe", "entity:ip=<default>": "off", "listener:edge": "enforce", "entity:user=a": "off"}
    assert Switches(table).of_address("edge", "192.0.2.7") is SwitchMode.OBSERVE
    assert Switches(table).of_address("edge", "192.0.2.8") is SwitchMode.OFF
    del table["entity:ip=<default>"]
    assert Switches(table).of_address("edge", "192.0.2.8") is SwitchMode.ENFORCE


def test_rubbish_in_the_store_is_left_out() -> None:
    """What is no switch is named and holds for no client; the others hold."""
    switches = Switches({"all": "observe", "entity:user": "off", "listener:edge": "maybe"})
    assert switches.of_all is SwitchMode.OBSERVE
    assert dict(switches.table) == {"all": SwitchMode.OBSERVE}
    assert [problem.partition(":")[0] for problem in switches.problems] == ["entity", "listener"]


def test_there_are_not_more_than_fit() -> None:
    """Beyond the limit switches are left out, the first ones hold."""
    switches = Switches({f"entity:user=u{n}": "off" for n in range(SWITCHES_MAX + 1)})
    assert len(switches.table) == SWITCHES_MAX
    assert len(switches.problems) == 1


def test_tables_in_order_and_equal() -> None:
    """The broadest stand first, and two tables with the same switches are the same."""
    one = Switches({"entity:user=a": "off", "listener:edge": "observe", "all": "enforce"})
    assert list(one.table) == ["all", "listener:edge", "entity:user=a"]
    assert one == Switches({"all": "enforce", "entity:user=%61": "off", "listener:edge": "observe"})
    assert one != Switches({"all": "enforce"})
    assert not Switches({})
    assert Target() == read_target("all")
