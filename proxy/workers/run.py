"""Runs a Sluice as its configuration says: in one process, or as a supervisor with workers."""

from __future__ import annotations

from proxy.app.open_files import fit_open_files
from proxy.app.run import MakeProxy, run
from proxy.config.load import ConfigSource
from proxy.config.model import Config
from proxy.workers.count import usable_cores


def run_sluice(source: ConfigSource) -> int:
    """Run until a signal says stop; return the exit code.

    Raises:
        ConfigProblems: configuration or quotas are not right.
        StartError: an address cannot be bound.
    """
    config = fit_open_files(source.load())
    workers = usable_cores() if config.workers == "auto" else config.workers
    return run(config, source) if workers == 1 else run(config, source, _supervisor_of(workers))


def _supervisor_of(workers: int) -> MakeProxy:
    from proxy.workers.supervisor import Supervisor  # only here: one process needs none

    def make(config: Config, source: ConfigSource) -> Supervisor:
        return Supervisor(config, source, workers)

    return make
