"""Metering of one process: a run with its name, its files, its clock."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import importlib.metadata
import os
import socket
from pathlib import Path
from typing import Any, Final

from proxy import log
from proxy.clock import now_ms, wall_time_s
from proxy.config import Config
from proxy.errors import StartError
from proxy.metering.description import GroupDescription
from proxy.metering.layout import SEGMENTS, make_directory, new_run_id, sanitized
from proxy.metering.meter import Meter
from proxy.metering.writer import MeteringWriter, WriterSettings, header_of, left_over
from proxy.quota_scopes import QuotaScopes

FLUSH_S: Final = 0.25
STOP_S: Final = 30.0


class Metering:
    """Builds the meter that the data path notes decisions with, and keeps its writer going.

    Raises:
        StartError: the directory cannot be written, or another process meters into it under the same name.
    """

    def __init__(self, config: Config, scopes: QuotaScopes) -> None:
        settings = config.metering
        assert settings.dir is not None
        self._directory = settings.dir
        self._offset_ms = int(wall_time_s() * 1_000) - now_ms()
        self.proxy_id = sanitized(settings.proxy_id or socket.gethostname())
        self._lock = _lock(settings.dir, self.proxy_id)
        self.run_id = new_run_id(wall_time_s())
        header = header_of(
            self.run_id,
            self.proxy_id,
            self._offset_ms,
            proxy_version=importlib.metadata.version("kafka-sluice"),
            level=settings.level,
            names="plain",
            settings={"num_samples": config.quotas.window_num, "window_ms": config.quotas.window_size_seconds * 1_000},
            quota_config_sha256=None,
        )
        writer_settings = WriterSettings(settings.dir, header, settings.rotate_bytes, settings.rotate_seconds * 1_000)
        self.writer = MeteringWriter(writer_settings, self._wall_ms, _tell_problem)
        self.meter = Meter(self.writer.hand_over, GroupDescription(scopes, self._wall_ms), self._offset_ms)
        self._level = settings.level
        self._timer: asyncio.TimerHandle | None = None
        self._told: dict[str, Any] | None = None

    def start(self, config: Config) -> None:
        """Begin to write; what an earlier run left is made whole first."""
        self.settings_changed(config)
        self.writer.start(left_over(self._directory))
        self._tick()

    def settings_changed(self, config: Config) -> None:
        """Note how the proxy is set from here on. A file set holds one state: another one begins a new set."""
        state = {
            "mode": config.enforcement.mode,
            "scope": config.enforcement.scope,
            "delay_max_ms": config.enforcement.delay_max_ms,
            "num_samples": config.quotas.window_num,
            "window_ms": config.quotas.window_size_seconds * 1_000,
            "produce_enabled": config.quotas.produce,
            "fetch_enabled": config.quotas.fetch,
            "request_enabled": config.quotas.request,
            "level": self._level,
        }
        if state == self._told:
            return
        self.meter.flush()
        if self._told is not None:
            self.writer.rotate()
        self._told = state
        self.meter.tell({"state": {**state, "from_seq": self.meter.next_seq, "ts_ms": self._wall_ms()}})

    async def stop(self) -> None:
        """Write all that was noted; what takes longer is made whole at the next start."""
        if self._timer is not None:
            self._timer.cancel()
        self.meter.flush()
        done = await asyncio.get_running_loop().run_in_executor(None, self.writer.stop, STOP_S)
        if not done:
            log.warning("metering_not_finished", directory=str(self._directory), remedy="the next start, or sluice meter repair, goes on")
        os.close(self._lock)

    def _wall_ms(self) -> int:
        return now_ms() + self._offset_ms

    def _tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(FLUSH_S, self._tick)
        self.meter.flush()


def _lock(directory: Path, proxy_id: str) -> int:
    """Keep others with the same name out of the directory for as long as this process lives."""
    try:
        make_directory(directory / SEGMENTS)
        descriptor = os.open(directory / SEGMENTS / f".lock-{proxy_id}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    except OSError as error:
        raise StartError(f"metering.dir: {directory} cannot be written: {error.strerror or error}; name a directory that can") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.close(descriptor)
        raise StartError(
            f"metering.dir: another process meters into {directory} as {proxy_id}; set another metering.proxy_id or directory"
        ) from error
    return descriptor


def _tell_problem(problem: str | None) -> None:
    if problem is None:
        log.info("metering_written_again")
    else:
        log.warning("metering_not_written", limit_key="metering_not_written", problem=problem)
