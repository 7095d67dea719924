"""The demo: a mock cluster, Sluice or a fleet of Sluices in front of it, four clients, and a stream of new connections."""

from pathlib import Path


def main(seconds: int, svg: Path, proxies: int, *, paced: bool) -> int:
    """Run the demo for `seconds` with so many proxies; return 0 if all checks pass, 1 if one fails, 2 if it cannot run here."""
    from proxy.demo.command import run  # imported here: the mock cluster alone does not need it

    return run(seconds, svg, proxies, paced=paced)
