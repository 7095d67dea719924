"""The process of a client: `python -m proxy.demo.clients.client NAME BOOTSTRAP PARTITIONS INTERVAL_MS SECONDS`, started by the demo."""

import sys

from proxy.demo.clients.cast import role_named
from proxy.demo.report import PipeStage, Task


def main() -> None:
    """Run the client of one role to its end."""
    name, bootstrap, partitions, interval_ms, seconds = sys.argv[1:]
    role = role_named(name)
    role.run(Task(bootstrap, role.name, int(partitions), role.record_bytes, int(interval_ms), int(seconds)), PipeStage())


if __name__ == "__main__":
    main()
