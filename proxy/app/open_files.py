"""Checks that the limit on open files allows `max_connections`, with two sockets for each connection."""

import resource
from typing import Final

import msgspec

from proxy.config.model import Config, Connections
from proxy.config.problem import CONFIGURATION, ConfigProblems, Problem

SPARE_FILES: Final = 1_024
"""Files beside connections: listeners, logs, libraries, the admin port."""
FILES_PER_CONNECTION: Final = 2


def fit_open_files(config: Config) -> Config:
    """Raise this process's limit to what `max_connections` needs; where that is impossible, lower the default to what fits.

    Raises:
        ConfigProblems: the configured number of connections exceeds the system's limit.
    """
    wanted = config.connections.max_connections
    needed = wanted * FILES_PER_CONNECTION + SPARE_FILES
    reachable = _raise_limit(needed)
    if reachable >= needed:
        return config
    fitting = connections_within(reachable)
    if wanted != Connections().max_connections or fitting < 1:
        message = f"{wanted} needs {needed} open files, the system allows {reachable}"
        remedy = f"write {max(fitting, 1)} or less, or raise the limit (ulimit -n)"
        raise ConfigProblems([Problem(CONFIGURATION, "connections.max_connections", message, remedy)])
    return msgspec.structs.replace(config, connections=msgspec.structs.replace(config.connections, max_connections=fitting))


def _raise_limit(needed: int) -> int:
    """Return how many files this process may open, at most `needed`, after raising the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    reachable = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < reachable:
        resource.setrlimit(resource.RLIMIT_NOFILE, (reachable, hard))
    return reachable


def connections_within(open_files: int) -> int:
    """Return how many connections `open_files` allow, at least 0; a small limit keeps a quarter for the rest."""
    spare = min(SPARE_FILES, open_files // 4)
    return max(0, (open_files - spare) // FILES_PER_CONNECTION)
