"""The principal of a client follows from its login, certificate and address."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.principals.networks import NetworkPrincipals
from proxy.session.login.identity import IdentityRules, escaped
from quota.entity import ANONYMOUS, KafkaPrincipal
from sluice.principal import AuthenticationContext, PrincipalBuilder

PEER = ("10.2.7.9", 4_711)


def user(name: str) -> KafkaPrincipal:
    """Return a principal of type User."""
    return KafkaPrincipal("User", name)


@given(st.lists(st.sampled_from(["_", "%", "5F", "25", "_unknown__", "x", "__unknown__", "%5F_unknown__"]), max_size=5).map("".join))
def test_no_real_name_stands_for_an_unknown_client(name: str) -> None:
    """An escaped name never begins like a reserved name."""
    assert not escaped(name).startswith("__unknown__")


@given(st.lists(st.sampled_from(["_", "%", "5F", "25", "_unknown__", "x"]), max_size=6).map("".join), st.data())
def test_two_names_stay_two(name: str, data: st.DataObject) -> None:
    """Two different names are escaped to different names."""
    other = data.draw(st.just(escaped(name)) | st.sampled_from([f"%5F{name[1:]}", f"_{name[3:]}", f"%25{name[1:]}", f"%{name[3:]}"]))
    assert (escaped(name) == escaped(other)) == (name == other)


class Builder(PrincipalBuilder):
    """A principal builder that returns or raises what it is given and records its calls."""

    def __init__(self, answer: object) -> None:
        self.answer = answer
        self.asked: list[AuthenticationContext] = []

    def build(self, context: AuthenticationContext) -> KafkaPrincipal:
        """Return or raise the configured answer."""
        self.asked.append(context)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer  # type: ignore[return-value]


def test_a_builder_receives_all_that_is_known() -> None:
    """A builder receives the listener, address, mechanism and name, and its result is the principal."""
    builder = Builder(user("tenant"))
    rules = IdentityRules("l", builder=builder)
    assert rules.before_login(PEER) == rules.after_login(PEER, "PLAIN", "alice", is_delegation_token=False) == user("tenant")
    rules.after_login(PEER, "SCRAM-SHA-256", "id", is_delegation_token=True)
    rules.after_login(PEER, "GSSAPI", None, is_delegation_token=False)
    assert builder.asked == [
        AuthenticationContext("l", "PLAINTEXT", *PEER),
        AuthenticationContext("l", "SASL_PLAINTEXT", *PEER, mechanism="PLAIN", name="alice"),
        AuthenticationContext("l", "SASL_PLAINTEXT", *PEER, mechanism="SCRAM-SHA-256", name="id", delegation_token=True),
        AuthenticationContext("l", "SASL_PLAINTEXT", *PEER, mechanism="GSSAPI"),
    ]


@pytest.mark.parametrize("answer", [RuntimeError("no"), None, "alice", ("User", "alice"), KafkaPrincipal("User", ""), user("x" * 5_000)])
def test_a_faulty_builder_makes_its_clients_unknown(answer: object) -> None:
    """When a builder raises or returns no principal, the client is unknown and the fault is reported."""
    faults: list[tuple[str, Exception]] = []
    for rejects, expected in ((False, user("__unknown__/l/PLAIN")), (True, None)):
        rules = IdentityRules("l", builder=Builder(answer), rejects_unknown=rejects, on_fault=lambda *fault: faults.append(fault))
        assert rules.after_login(PEER, "PLAIN", "alice", is_delegation_token=False) == expected
    assert [listener for listener, _ in faults] == ["l", "l"]


def test_the_example_groups_clients_by_network() -> None:
    """The example builder names clients without a login by the most specific network, and keeps login names."""
    builder = NetworkPrincipals()
    builder.configure({"10.2.0.0/16": "web", "10.2.7.0/24": "web-batch"})
    rules = IdentityRules("l", builder=builder)
    found = {host: rules.before_login((host, 1)) for host in ("10.2.7.9", "10.2.8.9", "::ffff:10.2.8.9", "192.0.2.1", "2001:db8::1")}
    assert found == {
        "10.2.7.9": user("web-batch"),
        "10.2.8.9": user("web"),
        "::ffff:10.2.8.9": user("web"),
        "192.0.2.1": ANONYMOUS,
        "2001:db8::1": ANONYMOUS,
    }
    assert rules.after_login(PEER, "PLAIN", "alice", is_delegation_token=False) == user("alice")
    assert rules.after_login(PEER, "GSSAPI", None, is_delegation_token=False) == user("__unknown__/l/GSSAPI")
