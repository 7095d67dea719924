"""The demo: a mock cluster, Sluice in front of it, four clients, and a stream of new connections."""

from pathlib import Path


def main(seconds: int, svg: Path) -> int:
    """Run the demo for `seconds`; return 0 if every check passes, 1 if one fails, 2 if the demo cannot run here."""
    from proxy.demo.command import run  # imported here: the mock cluster alone does not need it

    return run(seconds, svg)
