"""The ports that `free_port` gives to tests."""

from tests.support.ports import BROKER_PORTS, free_bootstrap_port


def test_a_long_run_of_the_suite_does_not_use_up_the_ports() -> None:
    """A port is free after any number of requests, and a port that was given lately is not given again."""
    lately: list[range] = []
    for _ in range(2_000):
        first = free_bootstrap_port()
        ports = range(first, first + 1 + BROKER_PORTS)
        assert not any(set(ports) & set(other) for other in lately[-30:])
        lately.append(ports)
