"""One Sluice in one process: puts control plane and data path together, starts, reloads and drains them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

from proxy.app.config_parts import callback_choice
from proxy.app.control_plane import ControlPlane, admission_of
from proxy.app.data_path import DataPath
from proxy.app.live_state import LiveState
from proxy.app.open_files import fit_open_files
from proxy.app.reload import needs_restart
from proxy.base.clock import now_ns
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
from proxy.telemetry.garbage import GarbageWatch
from proxy.telemetry.loop_lag import LoopLag
from proxy.telemetry.watchdog import Watchdog
from proxy.tls.contexts import TlsContexts


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
        self._lag = LoopLag()
        self._garbage = GarbageWatch(self.counters, _log_garbage)
        self._watchdog = Watchdog(self._lag, clock_ns=now_ns, on_stall=_log_stall)
        self._tasks: list[asyncio.Task[Any]] = []

    async def start(self) -> None:
        """Read the quotas, bind every port, then begin.

        Raises:
            ConfigProblems: the quotas are not right.
            StartError: an address cannot be bound.
        """
        await self.control.start(self.state, self._lag)
        self.data_path.meter(self.admission)
        self.gateway.start()
        self.control.accept()
        self._watchdog.start(asyncio.get_running_loop())
        self._garbage.start()
        forever = (*self.control.forever(), self.data_path.expire_forever(), self._garbage.watch(), self.tls.refresh_forever())
        self._tasks = [asyncio.create_task(work) for work in forever]

    async def reload(self) -> bool:
        """Read file and flags again; what can change does so without a disconnect, the rest is named. False: kept all."""
        try:
            config = fit_open_files(self._source.load())
            choice = callback_choice(config, self._source.place)
            if self.control.needs_other_store(config):
                await self.control.use_store(config)
        except ConfigProblems as problems:
            self.counters.config_reloads_rejected += 1
            for line in problems.lines():
                log.error("config_rejected", problem=line)
            return False
        await self.tls.refresh()
        quotas_are_right = await self.quotas.reload()
        for key in needs_restart(self.config, config):
            log.warning("restart_needed", key=key)
        self.data_path.reload(config, choice)
        self.control.reload(config)
        self.config = self.state.config = config
        if quotas_are_right:
            self.counters.config_reloads_succeeded += 1
            log.info("config_reloaded", mode=config.acting_mode, scope=config.enforcement.scope)
        else:
            self.counters.config_reloads_rejected += 1
        return quotas_are_right

    async def drain(self) -> None:
        """Stop accepting, answer what is in flight, release what waits."""
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
        self._watchdog.stop()
        self._garbage.stop()

    def apply_switches(self, table: Mapping[str, str]) -> None:
        """Put the switches of the quota store in force from the next request on; no connection ends."""
        self.control.apply_switches(table)

    def log_exception(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Count and log an uncaught exception: the loop's exception handler. What ended a connection is counted there."""
        if not context.get("counted"):
            self.counters.internal_errors += 1
        log.error("internal_error", limit_key="internal_error", message=str(context.get("message")), exception=context.get("exception"))

    @property
    def requests(self) -> int:
        """Requests forwarded so far."""
        return self.data_path.requests


def _log_stall(stack: str) -> None:
    log.warning("loop_stalled", limit_key="loop_stalled", stack=log.Stack(stack))


def _log_garbage(generation: int, took_ms: float) -> None:
    log.warning("gc_pause", limit_key="gc_pause", generation=generation, took_ms=round(took_ms, 1))
