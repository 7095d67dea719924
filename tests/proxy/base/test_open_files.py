"""The limit on open files and the number of connections."""

import resource

import msgspec
import pytest

from proxy.app.open_files import connections_within, fit_open_files
from proxy.config.flags import Flags
from proxy.config.load import ConfigSource
from proxy.config.model import Config, Connections
from proxy.config.problem import ConfigProblems


class System:
    """A process's soft and hard limit on open files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, soft: int, hard: int) -> None:
        self.limits = (soft, hard)
        monkeypatch.setattr(resource, "getrlimit", lambda _: self.limits)
        monkeypatch.setattr(resource, "setrlimit", lambda _, limits: setattr(self, "limits", limits))


def config_with(max_connections: int) -> Config:
    config = ConfigSource(None, Flags(listen="h:1", upstream="k:1")).load()
    return msgspec.structs.replace(config, connections=Connections(max_connections=max_connections))


def test_the_soft_limit_is_raised_as_far_as_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The soft limit is raised to two files per connection and 1,024 more."""
    system = System(monkeypatch, 1_024, 1_048_576)
    assert fit_open_files(config_with(10_000)) == config_with(10_000)
    assert system.limits == (21_024, 1_048_576)


def test_the_default_fits_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default number of connections is lowered to fit the hard limit."""
    System(monkeypatch, 1_024, 20_000)
    assert fit_open_files(config_with(10_000)).connections.max_connections == 9_488


def test_more_than_the_system_allows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A configured number of connections above the hard limit is refused with one line."""
    System(monkeypatch, 1_024, 4_096)
    with pytest.raises(ConfigProblems) as caught:
        fit_open_files(config_with(5_000))
    assert caught.value.lines() == [
        "the configuration: connections.max_connections: 5000 needs 11024 open files, the system allows 4096; "
        "write 1536 or less, or raise the limit (ulimit -n)"
    ]


@pytest.mark.parametrize(("open_files", "connections"), [(20_000, 9_488), (4_096, 1_536), (1_024, 384), (256, 96), (2, 1), (0, 0)])
def test_connections_within(open_files: int, connections: int) -> None:
    """A quarter of the open files, at most 1,024, is reserved for other uses than connections."""
    assert connections_within(open_files) == connections
