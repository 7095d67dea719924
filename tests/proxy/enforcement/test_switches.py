"""Enforcement switches: how targets are written, and which switch applies to a client."""

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
    """A target in canonical form is written as it was read."""
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
    """Other spellings of a target are written in canonical form."""
    assert str(read_target(text)) == same


@given(user=NAMES, client_id=NAMES)
def test_every_name_can_be_written(user: str | None, client_id: str | None) -> None:
    """A target with any user and client-id reads back as it was."""
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
    """An invalid target is refused with a line that says what to write."""
    with pytest.raises(SwitchError, match=r"; .*write"):
        read_target(text)


def test_modes() -> None:
    """The three modes are read, and another one is refused with their names."""
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
    """A switch of an entity precedes one of the listener, which precedes "all"; entities have Kafka's precedence."""
    for better, worse in pairwise(PRECEDENCE):
        both = Switches({worse: "off", better: "observe"})
        assert both.of_client("edge", "a", "c") is SwitchMode.OBSERVE, (better, worse)
        assert Switches({worse: "off"}).of_client("edge", "a", "c") is SwitchMode.OFF, worse


@given(st.sets(st.sampled_from(PRECEDENCE)), st.sampled_from(["a", "b"]), st.sampled_from(["c", "d", ""]))
def test_the_winner_is_the_first_level_that_fits(levels: set[str], user: str, client_id: str) -> None:
    """Of any set of switches the matching one of highest precedence applies, or none."""
    fits = [
        level for level in PRECEDENCE if level in levels and ("=a" not in level or user == "a") and ("=c" not in level or client_id == "c")
    ]
    switches = Switches({level: ("observe" if fits and level == fits[0] else "off") for level in levels})
    assert switches.of_client("edge", user, client_id) is (SwitchMode.OBSERVE if fits else None)


def test_who_is_not_meant() -> None:
    """A switch does not apply to another listener, user, client-id or address."""
    switches = Switches({"listener:edge": "off", "entity:user=a": "off", "entity:client-id=c": "off", "entity:ip=192.0.2.7": "off"})
    assert switches.of_client("inside", "b", "d") is None
    assert switches.of_address("inside", "192.0.2.8") is None
    assert switches.of_listener("inside") is None


def test_a_client_named_default_is_not_the_default() -> None:
    """The client-id named `<default>` has a switch of its own, apart from the default client-id's."""
    switches = Switches({"entity:client-id=%3Cdefault%3E": "off", "entity:client-id=<default>": "observe"})
    assert switches.of_client("edge", "a", DEFAULT) is SwitchMode.OFF
    assert switches.of_client("edge", "a", "c") is SwitchMode.OBSERVE


def test_addresses() -> None:
    """For an address its own switch applies first, then the default address's, then the listener's."""
    table = {"entity:ip=192.0.2.7": "observe", "entity:ip=<default>": "off", "listener:edge": "enforce", "entity:user=a": "off"}
    assert Switches(table).of_address("edge", "192.0.2.7") is SwitchMode.OBSERVE
    assert Switches(table).of_address("edge", "192.0.2.8") is SwitchMode.OFF
    del table["entity:ip=<default>"]
    assert Switches(table).of_address("edge", "192.0.2.8") is SwitchMode.ENFORCE


def test_rubbish_in_the_store_is_left_out() -> None:
    """Invalid switches are reported and ignored, and the others apply."""
    switches = Switches({"all": "observe", "entity:user": "off", "listener:edge": "maybe"})
    assert switches.of_all is SwitchMode.OBSERVE
    assert dict(switches.table) == {"all": SwitchMode.OBSERVE}
    assert [problem.partition(":")[0] for problem in switches.problems] == ["entity", "listener"]


def test_there_are_not_more_than_fit() -> None:
    """Switches beyond `SWITCHES_MAX` are ignored and reported."""
    switches = Switches({f"entity:user=u{n}": "off" for n in range(SWITCHES_MAX + 1)})
    assert len(switches.table) == SWITCHES_MAX
    assert len(switches.problems) == 1


def test_tables_in_order_and_equal() -> None:
    """Switches are ordered from broad to specific, and equal sets of switches are equal."""
    one = Switches({"entity:user=a": "off", "listener:edge": "observe", "all": "enforce"})
    assert list(one.table) == ["all", "listener:edge", "entity:user=a"]
    assert one == Switches({"all": "enforce", "entity:user=%61": "off", "listener:edge": "observe"})
    assert one != Switches({"all": "enforce"})
    assert not Switches({})
    assert Target() == read_target("all")
