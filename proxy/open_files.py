"""Each connection is two sockets: the limit on open files has to allow for `max_connections`."""

import resource
from typing import Final

import msgspec

from proxy import log
from proxy.config import Config, Limits
from proxy.errors import StartError

SPARE_FILES: Final = 1_024
"""Files beside connections: listeners, logs, libraries, the admin port."""
FILES_PER_CONNECTION: Final = 2


def fit_open_files(config: Config) -> Config:
    """Raise this process's limit as far as `max_connections` needs; where it cannot, lower a default.

    Raises:
        StartError: the operator asked for more connections than the system allows.
    """
    wanted = config.limits.max_connections
    needed = wanted * FILES_PER_CONNECTION + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    reachable = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < reachable:
        resource.setrlimit(resource.RLIMIT_NOFILE, (reachable, hard))
    if reachable >= needed:
        return config
    fitting = connections_within(reachable)
    if fitting < 1 or wanted != Limits().max_connections:
        raise StartError(
            f"limits.max_connections: {wanted} connections need {needed} open files, the system allows {reachable}; "
            f"write {max(fitting, 1)} or raise the limit (ulimit -n)"
        )
    log.warning("max_connections_lowered", max_connections=fitting, open_files=reachable)
    return msgspec.structs.replace(config, limits=msgspec.structs.replace(config.limits, max_connections=fitting))


def connections_within(open_files: int) -> int:
    """Return how many connections `open_files` allow, at least 0; a small limit keeps a quarter for the rest."""
    spare = min(SPARE_FILES, open_files // 4)
    return max(0, (open_files - spare) // FILES_PER_CONNECTION)
