"""A Sluice that meters some of its connections: `python -m bench.metering.app run ... --metering DIR`.

SIGUSR1 switches whether later connections are metered; until the first one, they are. So one process, with one memory layout and in the
same second, shows the cost of a metered request and of another one.
"""

from __future__ import annotations

import asyncio
import signal

from proxy.app import run
from proxy.app.app import App
from sluice_cli import __main__


class PartlyMetered(App):
    """Meters the connections that the callback selects."""

    async def start(self) -> None:
        """Start as Sluice does, then handle the signal."""
        await super().start()
        settings = self.data_path.session_settings
        meter = settings.meter
        assert meter is not None, "--metering is missing"

        def change() -> None:
            settings.meter = meter if settings.meter is None else None

        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, change)


if __name__ == "__main__":
    run.App = PartlyMetered  # type: ignore[misc]
    __main__.main()
