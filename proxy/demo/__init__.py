"""The demo: an embedded mock cluster, Sluice in front of it, four clients, and a stream of new connections."""

from pathlib import Path


def main(seconds: int, svg: Path) -> int:
    """Run the demo; return 0 when every verdict holds, 1 when one does not, 2 when it cannot run here."""
    from proxy.demo.command import run  # only here: the mock cluster alone needs none of it

    return run(seconds, svg)
