"""One Sluice in one process: puts control plane and data path together, starts, reloads and drains them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any, Final

from proxy.app.config_parts import callback_choice
from proxy.app.control_plane import ControlPlane, admission_of
from proxy.app.data_path import DataPath
from proxy.app.live_state import LiveState
from proxy.app.open_files import fit_open_files
from proxy.app.process_watch import ProcessWatch
from proxy.app.reload import needs_restart
from proxy.base.close_reason import CloseReason
from proxy.config.load import ConfigSource
from proxy.config.model import Config
from proxy.config.problem import ConfigProblems
from proxy.enforcement.mode import Enforcement
from proxy.enforcement.policy import Policy
from proxy.net.accept.bound_listener import BoundListener
from proxy.net.upstream.routes import Routes
from proxy.quota_admin.client_quota_api import ClientQuotaApi
from proxy.telemetry import log
from proxy.telemetry.counters import Counters
from proxy.tls.contexts import TlsContexts

UPGRADE_REMEDY: Final = "an upgrade in place needs a supervisor: set workers >= 2, or supervised = true, and restart once"


class App:
    """One running proxy."""

    def __init__(self, config: Config, source: ConfigSource) -> None:
        loop = asyncio.get_running_loop()
        self._source = source
        self.config = config
        self.counters = Counters()
        self.policy = Policy(Enforcement())
        self.tls = TlsContexts(loop, config, self.counters)
        routes = Routes(loop, config, self.tls)
        listeners = [BoundListener(one, self.tls.clients.get(one.name), routes.of(one.name)) for one in config.listeners]
        self.admission = admission_of(config, self.counters, self.policy)
        self.data_path = DataPath(
            config,
            source,
            self.counters,
            self.policy,
            routes,
            listeners,
            slots=self.admission,
            on_login_failed=self.admission.login_failed,
        )
        self.gateway, self.scopes, self.usages = self.data_path.gateway, self.data_path.scopes, self.data_path.usages
        self.control = ControlPlane(config, self.counters, self.policy, self.tls, routes, listeners, self.admission, self.data_path)
        self.client_listeners, self.connection_limits = self.control.client_listeners, self.control.connection_limits
        self.quotas, self.administration, self.audit = self.control.quotas, self.control.administration, self.control.audit
        self.probers = self.control.probers
        self.prober = self.probers[routes.main.name]
        self.gateway.client_quota_api = ClientQuotaApi(self.administration, self.control.authority)
        self.state = LiveState(config, self.data_path, self.control)
        self._watch = ProcessWatch(self.counters)
        self._tasks: list[asyncio.Task[Any]] = []

    async def start(self) -> None:
        """Read the quotas, bind every port, then serve.

        Raises:
            ConfigProblems: the quotas are invalid.
            StartError: an address cannot be bound.
        """
        await self.control.open(self.state, self._watch.lag)
        await self.control.follow_quotas()
        self.data_path.meter(self.admission)
        self.gateway.start()
        self.control.accept()
        self._watch.start()
        forever = (*self.control.forever(), self.data_path.expire_forever(), self._watch.watch(), self.tls.refresh_forever())
        self._tasks = [asyncio.create_task(work) for work in forever]

    async def reload(self) -> bool:
        """Read file and flags again; settings that can change do so without a disconnect, the rest is logged. False: nothing changed."""
        try:
            config = fit_open_files(self._source.load())
            choice = callback_choice(config, self._source.place)
            if self.control.needs_other_store(config):
                await self.control.use_store(config)
        except ConfigProblems as problems:
            return self.control.reload_rejected(self._source.located(problems.problems).lines())
        await self.tls.refresh()
        quotas_are_right = await self.quotas.reload()
        for key in needs_restart(self.config, config):
            log.warning("restart_needed", key=key)
        self.data_path.reload(config, choice)
        self.control.reload(config)
        self.config = self.state.config = config
        await self.control.warn_of_groups()
        return self.control.reload_ended(quotas_are_right=quotas_are_right)

    async def drain(self) -> None:
        """Stop accepting, forward responses in flight, release what waits."""
        self.state.draining = True
        self.control.stop_accepting(CloseReason.DRAIN)
        await self.data_path.drain()

    async def stop(self) -> None:
        """End everything now."""
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self.control.stop_accepting(CloseReason.SHUTDOWN)
        await self.gateway.close()
        await self.control.stop()
        await self.data_path.stop()
        await self.control.close_admin()
        self._watch.stop()

    def apply_switches(self, table: Mapping[str, str]) -> None:
        """Apply the switches of the quota store from the next request on; no connection ends."""
        self.control.apply_switches(table)

    def upgrade(self) -> None:
        """Refuse: the listeners of one process go with it."""
        log.error("upgrade_refused", remedy=UPGRADE_REMEDY)

    def log_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Count and log an uncaught exception: the loop's exception handler."""
        self._watch.log_exception(loop, context)

    @property
    def requests(self) -> int:
        """Number of requests forwarded so far."""
        return self.data_path.requests
