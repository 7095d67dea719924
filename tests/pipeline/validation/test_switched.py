"""The outcomes that switches allow for a group's decisions, as the validator computes them."""

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from pipeline.validation.rules.switched import ENFORCE, OBSERVE, OFF, Switched
from proxy.enforcement.mode import Enforcement, Mode
from proxy.enforcement.policy import Policy
from proxy.enforcement.switches import Switches
from proxy.metering.facts.names import Names
from proxy.metering.facts.switches_fact import switches_fact
from quota.entity import KafkaPrincipal, sanitize

LISTENERS = ["edge", "inside"]
USERS = ["alice", "b b", "ANONYMOUS"]
CLIENT_IDS = ["etl", "web", "<default>"]
ADDRESSES = ["192.0.2.7", "2001:db8::7"]

PARTS = st.builds(
    lambda user, client_id: ",".join(f"{kind}={name}" for kind, name in (("user", user), ("client-id", client_id)) if name),
    st.sampled_from(["", "<default>", *map(sanitize, USERS)]),
    st.sampled_from(["", "<default>", *map(sanitize, CLIENT_IDS)]),
).filter(bool)
TARGETS = st.one_of(
    st.just("all"),
    st.sampled_from([f"listener:{name}" for name in LISTENERS]),
    PARTS.map(lambda parts: f"entity:{parts}"),
    st.sampled_from([f"entity:ip={ip}" for ip in ("<default>", *ADDRESSES)]),
)
TABLES = st.dictionaries(TARGETS, st.sampled_from(["enforce", "observe", "off"]), max_size=6)


def outcome(enforcement: Enforcement | None) -> str:
    """Return the proxy's handling of a verdict, in the terms of the validator."""
    return OFF if enforcement is None else OBSERVE if enforcement.only_observes else ENFORCE


def group(**columns: Any) -> dict[str, Any]:
    names = ("quota_type", "scope", "listener", "tag_user", "tag_client_id", "tag_ip", "tags")
    return {**dict.fromkeys(names), "quota_type": "Produce", "scope": "broker", **columns}


def policy_and_switched(table: dict[str, str], mode: Mode, names: Names | None = None) -> tuple[Policy, Switched]:
    policy = Policy(Enforcement(mode))
    policy.switch(Switches(table))
    return policy, Switched(mode.value, switches_fact(policy.switches, names or Names()))


@given(TABLES, st.sampled_from(Mode), st.sampled_from(["plain", "keyed", "none"]))
@example({"entity:user=alice": "observe", "entity:user=ANONYMOUS": "enforce"}, Mode.DELAY, "none")
@example({"entity:user=alice": "enforce", "entity:user=ANONYMOUS": "observe"}, Mode.DELAY, "none")
def test_what_happens_to_any_member_is_possible(table: dict[str, str], mode: Mode, form: Any) -> None:
    """For any switches and any form of names, the outcome of every client is among the possible outcomes of its groups."""
    names = Names(form, b"0123456789abcdef")
    policy, switched = policy_and_switched(table, mode, names)
    for user in USERS:
        for client_id in CLIENT_IDS:
            tag_user, tag_client_id = names(sanitize(user)), names(client_id)
            groups = [
                group(tag_user=tag_user, tag_client_id=tag_client_id),
                group(tag_user=tag_user, tag_client_id=""),
                group(tag_user="", tag_client_id=tag_client_id),
                group(tags='{"tenant":"acme"}'),
            ]
            for listener in LISTENERS:
                done = outcome(policy.of_client(listener, KafkaPrincipal("User", user), client_id))
                for one in groups:
                    assert done in switched.possible(one)
                assert done in switched.modes


@given(TABLES, st.sampled_from(Mode))
def test_a_group_of_one_client_has_the_outcomes_of_its_listeners(table: dict[str, str], mode: Mode) -> None:
    """The possible outcomes of a group of one client are those that it has on some listener."""
    policy, switched = policy_and_switched(table, mode)
    for user in USERS:
        for client_id in CLIENT_IDS:
            done = {outcome(policy.of_client(listener, KafkaPrincipal("User", user), client_id)) for listener in (*LISTENERS, "third")}
            assert switched.possible(group(tag_user=sanitize(user), tag_client_id=client_id)) == done


@given(TABLES, st.sampled_from(Mode))
def test_connections(table: dict[str, str], mode: Mode) -> None:
    """A listener's rate has that listener's outcome, the process's rate that of any listener, and an address's rate its own."""
    policy, switched = policy_and_switched(table, mode)
    every = (*LISTENERS, "third")
    of_listeners = {name: outcome(policy.of_listener(name)) for name in every}
    for name in every:
        assert switched.possible(group(quota_type="Connection", scope="listener", listener=name)) == {of_listeners[name]}
    assert switched.possible(group(quota_type="Connection", scope="process")) == set(of_listeners.values())
    for address in (*ADDRESSES, "198.51.100.1"):
        done = {outcome(policy.of_address(name, address)) for name in every}
        assert switched.possible(group(quota_type="Connection", scope="ip", tag_ip=address)) == done


def test_without_switches_the_mode_applies_to_all_clients() -> None:
    """Without switches, or with one for all clients, every group has the same mode."""
    assert Switched("mute", None).is_plain
    assert Switched("observe", None).modes == {OBSERVE}
    assert Switched("delay", '[{"mode":"off"}]').modes == {OFF}
    assert Switched("delay", '[{"mode":"off"}]').is_plain
