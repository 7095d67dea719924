"""Host names for one process that no resolver has: a hosts file in a mount namespace that no other process sees."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

_MOUNT = 'mount --bind "$0" /etc/hosts && exec "$@"'


class NoNamespacesError(Exception):
    """Mount namespaces are not available here; the text says why."""


def command_that_knows(hosts: Path, names: Mapping[str, str], command: list[str]) -> list[str]:
    """Write the file `hosts`, addresses by name; return the command line that runs `command` with it.

    Raises:
        NoNamespacesError: neither root nor user namespaces, or no util-linux.
    """
    hosts.write_text("127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in names.items()))
    within = ["unshare", "--map-root-user", "--mount", "sh", "-c", _MOUNT, str(hosts)]
    try:
        subprocess.run([*within, "true"], check=True, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.CalledProcessError) as error:
        said = error.stderr.strip() if isinstance(error, subprocess.CalledProcessError) else str(error)
        raise NoNamespacesError(f"a mount namespace cannot be made here: {said}") from error
    return [*within, *command]
