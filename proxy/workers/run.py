"""Runs Sluice as configured: in one process, or as a supervisor with workers."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

from proxy.app.app import UPGRADE_REMEDY
from proxy.app.open_files import fit_open_files
from proxy.app.run import MakeProxy, RunningProxy, run
from proxy.base.errors import StartError
from proxy.config.load import ConfigSource
from proxy.config.model import Config
from proxy.config.problem import ConfigProblems
from proxy.workers.count import usable_cores
from proxy.workers.handover.predecessor import TAKEOVER_PID_VARIABLE
from proxy.workers.processes.fork_server import Spawn, execute, start_fork_server


@contextlib.contextmanager
def process_starter(config: Config) -> Iterator[Spawn]:
    """Yield what starts the processes of a supervisor, for `run_sluice`. The caller has neither threads nor an event loop."""
    server = start_fork_server() if is_supervised(config) else None
    if server is None:
        yield execute
        return
    try:
        yield server.spawn
    finally:
        server.close()


def run_sluice(source: ConfigSource, spawn: Spawn) -> int:
    """Run until a signal ends the process; return the exit code.

    Args:
        spawn: starts the processes of a supervisor.

    Raises:
        ConfigProblems: the configuration or the quotas are invalid.
        StartError: an address cannot be bound, or another supervisor runs.
    """
    try:
        return _run(source, spawn)
    except ConfigProblems as problems:
        raise source.located(problems.problems) from problems


def _run(source: ConfigSource, spawn: Spawn) -> int:
    config = fit_open_files(source.load())
    workers = usable_cores() if config.workers == "auto" else config.workers
    predecessor_pid = os.environ.pop(TAKEOVER_PID_VARIABLE, None)
    if is_supervised(config):
        return run(config, source, _supervisor_of(workers, spawn, takes_over=predecessor_pid is not None), "supervisor")
    if predecessor_pid is not None:
        raise StartError(f"a Sluice without a supervisor cannot replace the running one: {UPGRADE_REMEDY}")
    return run(config, source)


def is_supervised(config: Config) -> bool:
    """Whether a configuration asks for a supervisor, or for a fleet, which always has one."""
    return config.supervised or config.fleet is not None or (usable_cores() if config.workers == "auto" else config.workers) > 1


def _supervisor_of(workers: int, spawn: Spawn, *, takes_over: bool) -> MakeProxy:
    from proxy.workers.start import start_supervisor  # imported here: a single process needs no supervisor

    async def make(config: Config, source: ConfigSource, terminate: Callable[[], None]) -> RunningProxy:
        return await start_supervisor(config, source, workers, terminate, spawn, takes_over=takes_over)

    return make
