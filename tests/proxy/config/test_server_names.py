"""Host names of brokers that share a port: from a node id to its name and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.config.sections.server_names import ServerNames, UnknownServerNameError, read_broker_name

NAMES = ServerNames("kafka.example.org", "broker-{node_id}.kafka.example.org", others_bootstrap=False)
GENEROUS = ServerNames("kafka.example.org", "broker-{node_id}.kafka.example.org", others_bootstrap=True)


@given(node_id=st.integers(0, 2**31 - 1), upper=st.booleans(), dot=st.booleans())
def test_every_name_leads_to_its_broker(node_id: int, *, upper: bool, dot: bool) -> None:
    """A broker's name leads to its node id in any case, with or without a final dot."""
    name = NAMES.name_of(node_id) + "." * dot
    assert NAMES.node_of(name.upper() if upper else name) == node_id


def test_the_bootstrap_name_leads_to_no_broker_in_particular() -> None:
    """The bootstrap name leads to no node id."""
    assert NAMES.node_of("Kafka.Example.org") is None


@pytest.mark.parametrize(
    "name",
    [
        None,
        "",
        "example.org",
        "broker-.kafka.example.org",
        "broker-01.kafka.example.org",
        "broker--1.kafka.example.org",
        "broker-2147483648.kafka.example.org",
        "broker-1.kafka.example.org.evil.org",
        "xbroker-1.kafka.example.org",
        "broker-1xkafkaxexample.org",
        "broker-\u0661.kafka.example.org",
    ],
)
def test_other_names_lead_nowhere_or_to_the_bootstrap(name: str | None) -> None:
    """Another name is refused, or leads to the bootstrap if the listener allows it."""
    with pytest.raises(UnknownServerNameError):
        NAMES.node_of(name)
    assert GENEROUS.node_of(name) is None


@pytest.mark.parametrize(
    "template", [7, "kafka.example.org", "{node_id}.{node_id}.org", "broker {node_id}", "10.0.0.{node_id}", "x" * 60 + "{node_id}.org"]
)
def test_a_template_that_makes_no_names(template: object) -> None:
    """A template that does not give each broker a valid name of its own is refused."""
    with pytest.raises(ValueError):
        read_broker_name(template)
