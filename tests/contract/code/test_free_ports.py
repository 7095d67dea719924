"""Ports that tests ask for."""

from tests.support.ports import BROKER_PORTS, free_bootstrap_port


def test_a_long_run_of_the_suite_does_not_use_up_the_ports() -> None:
    """However many ports were asked for, the next are there; none that was given lately is given again."""
    lately: list[range] = []
    for _ in range(2_000):
        first = free_bootstrap_port()
        ports = range(first, first + 1 + BROKER_PORTS)
        assert not any(set(ports) & set(other) for other in lately[-30:])
        lately.append(ports)
