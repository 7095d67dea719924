"""Metering of one process: a run with its name, files and clock."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import importlib.metadata
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from metering_format.places import CONTINUED, PACED, SEGMENTS, SHARED
from proxy.base.clock import now_ms, wall_time_s
from proxy.base.errors import StartError
from proxy.base.files import FILE_MODE, make_directory, try_lock
from proxy.config.kafka_client import kafka_client_settings
from proxy.config.model import Config
from proxy.config.model import Metering as MeteringSettings
from proxy.enforcement.pacing import Pacings
from proxy.enforcement.policy import Policy
from proxy.enforcement.quota_scopes import QuotaScopes
from proxy.meter.buffer import DecisionBuffer
from proxy.meter.meter import Meter, TracingMeter
from proxy.metering.facts.connections import ConnectionDecisions
from proxy.metering.facts.description import GroupDescription
from proxy.metering.facts.fleet_fact import FleetFact
from proxy.metering.facts.names import names_of
from proxy.metering.facts.pacing_fact import pacing_fact
from proxy.metering.facts.shares_fact import shares_fact
from proxy.metering.facts.switches_fact import switches_fact
from proxy.metering.facts.usage_facts import usage_facts
from proxy.metering.layout import new_run_id, pending_path, sanitized
from proxy.metering.locks import lock_path
from proxy.metering.retention import Retention
from proxy.metering.segment import left_over
from proxy.metering.topic import TopicSink
from proxy.metering.upload.uploader import Uploader
from proxy.metering.writer import WAITING_BYTES_MAX, MeteringWriter, WriterSettings, header_of
from proxy.telemetry import log
from proxy.telemetry.counters import MeteringCounts
from quota.connections.connection_quotas import ConnectionQuotas
from quota.connections.connection_rate import ConnectionRate
from sluice.object_store import shown_url

if TYPE_CHECKING:
    from proxy.shared_usage.shared_usage import SharedUsage

FLUSH_S: Final = 0.25
STOP_S: Final = 30.0
SECOND_MS: Final = 1_000


class JudgedConnections(Protocol):
    """The connection quotas with metered decisions.

    Attributes:
        quotas: the quotas.
        only_observes: whether the connection being checked is admitted in any case.
    """

    quotas: ConnectionQuotas
    only_observes: bool


class Metering:
    """Creates the data path's meter, and runs its writer.

    Args:
        shared: the sharing of usage with other processes; records of their usage are metered, too.
        continued: rates that continue those of another process, so that their samples begin before this run.
        of_run: further settings of the run in manifests.
        pacings: which groups are paced; None: none can be.

    Raises:
        StartError: the directory cannot be written, or another process meters into it under the same id.
    """

    def __init__(
        self,
        config: Config,
        scopes: QuotaScopes,
        admission: JudgedConnections,
        counts: MeteringCounts,
        policy: Policy,
        shared: SharedUsage | None = None,
        continued: Sequence[ConnectionRate] = (),
        of_run: Mapping[str, Any] | None = None,
        pacings: Pacings | None = None,
    ) -> None:
        settings = config.metering
        assert settings.dir is not None
        self._directory = settings.dir
        self._scopes = scopes
        self._policy = policy
        self._offset_ms = int(wall_time_s() * 1_000) - now_ms()
        self.proxy_id = sanitized(settings.proxy_id or socket.gethostname())
        self._names = names_of(settings.names, settings.key_file)
        self._lock = _lock(settings.dir, self.proxy_id)
        self.run_id = new_run_id(wall_time_s())
        self._config = config
        self._table_source = _source_of(config)
        self._table_by: str | None = None
        of_this = {**_shared_with(shared), **(of_run or {}), **({CONTINUED: self.wall_ms()} if continued else {})}
        if pacings is not None and pacings.paces:
            of_this[PACED] = pacings.burst_ms
        writer_settings = self._writer_settings(config, settings.dir, of_this)
        self.writer = MeteringWriter(writer_settings, self.wall_ms, _log_problem, counts=counts)
        self._topic: TopicSink | None = None
        if settings.topic is not None:
            reach = functools.partial(kafka_client_settings, config.upstream)
            self._topic = TopicSink(settings.dir, self.proxy_id, settings.topic, reach, counts, _log_topic_problem)
        self._uploader: Uploader | None = None
        if settings.upload is not None:
            self._uploader = Uploader(settings.dir, self.proxy_id, settings.upload.url, counts, _log_upload_problem)
        self.writer.converter.on_converted = self._converted
        self.writer.converter.on_lost = _log_lost
        self._buffer = _buffer(pending_path(settings.dir, self.run_id))
        describe = GroupDescription(scopes, admission.quotas, self._names, self.wall_ms, lambda: self._table_source, lambda: self._table_by)
        meter_of_level = TracingMeter if settings.level == "trace" else Meter
        self.meter = meter_of_level(
            self.writer.hand_over,
            describe,
            self._offset_ms,
            describe.described_groups,
            buffer=self._buffer,
            continued=continued,
        )
        self._shared = shared
        if shared is not None:
            shared.on_remote = self.meter.remote
        scopes.on_labelled = self.meter.repeat_groups
        admission.quotas.observe(ConnectionDecisions(self.meter, lambda: admission.only_observes))
        self._level = settings.level
        self._timer: asyncio.TimerHandle | None = None
        self._recorded_state: dict[str, Any] | None = None
        self._fleet = FleetFact()
        self._pacings = pacings
        self._has_schedules = pacings is not None and pacings.paces
        self._sensor = _sensor_of(config)  # a reload does not change it
        self._second_ms = self.wall_ms() // SECOND_MS * SECOND_MS

    def _writer_settings(self, config: Config, directory: Path, of_run: dict[str, Any]) -> WriterSettings:
        settings = config.metering
        header = header_of(
            self.run_id,
            self.proxy_id,
            self._offset_ms,
            proxy_version=importlib.metadata.version("kafka-sluice"),
            level=settings.level,
            names=settings.names,
            settings={**_sensor_of(config), "store": config.quotas.store, **of_run},
            quota_config_sha256=_sha256_of(config.quotas.path),
        )
        age_ms_max = None if settings.max_age is None else settings.max_age * 1_000
        return WriterSettings(
            directory,
            header,
            settings.rotate_bytes,
            settings.rotate_seconds * 1_000,
            self._retention(settings, age_ms_max),
            publish=settings.topic is not None,
        )

    def _retention(self, settings: MeteringSettings, age_ms_max: int | None) -> Retention:
        if settings.upload is None:
            return Retention(settings.max_bytes, age_ms_max, proxy_id=self.proxy_id)
        uploads_to, local_bytes_max = shown_url(settings.upload.url), settings.upload.local_bytes_max
        return Retention(settings.max_bytes, age_ms_max, proxy_id=self.proxy_id, uploads_to=uploads_to, local_bytes_max=local_bytes_max)

    def _converted(self) -> None:
        """Let finished file sets be sent. Called by the converter's thread."""
        for sink in (self._topic, self._uploader):
            if sink is not None:
                sink.notify()

    def start(self, config: Config) -> None:
        """Repair the files of earlier runs, then start to write."""
        self.settings_changed(config)
        self.writer.start(left_over(self._directory, self.proxy_id))
        if self._topic is not None:
            self._topic.start()
        if self._uploader is not None:
            self._uploader.start()
        self._tick()

    def settings_changed(self, config: Config) -> None:
        """Record the settings that apply from here on."""
        self._config = config
        state = {
            "mode": config.acting_mode,
            "scope": config.enforcement.scope,
            "delay_max_ms": config.enforcement.delay_max_ms,
            **self._sensor,
            "produce_enabled": config.quotas.produce,
            "fetch_enabled": config.quotas.fetch,
            "request_enabled": config.quotas.request,
            "level": self._level,
            "switches": switches_fact(self._policy.switches, self._names),
            "fleet": self._fleet.text,
            "pacing": pacing_fact(self._pacings, self._names),
        }
        if state != self._recorded_state:
            self._recorded_state = state
            self.meter.add_fact({"state": {**state, "from_seq": self.meter.next_seq, "ts_ms": self.wall_ms()}})

    def pacing_changed(self, config: Config) -> None:
        """Record how groups are enforced from here on; files have the schedules of groups from the first one on that is paced."""
        self.settings_changed(config)
        if self._pacings is not None and self._pacings.paces and not self._has_schedules:
            self._has_schedules = True
            self.meter.flush()
            self.writer.add_settings({PACED: self._pacings.burst_ms})

    def fleet_reported(self, clock_ms: int, members: Mapping[str, str], *, is_cut_off: bool) -> None:
        """Record what is new in a report of the fleet's hub.

        Args:
            clock_ms: time of the bus minus monotonic time, in ms.
            members: names of the other members that are heard, by incarnation.
            is_cut_off: whether this member hears nobody.
        """
        if self._fleet.update(clock_ms, members, is_cut_off=is_cut_off):
            self.settings_changed(self._config)

    def quotas_changed(self, who: str | None = None) -> None:
        """Record that another table of quotas applies from here on.

        Args:
            who: the principal that requested the change; None: at startup, or from another source.
        """
        self._table_source, self._table_by = _source_of(self._config), who
        self.meter.repeat_bounds()

    async def stop(self) -> None:
        """Write everything that was recorded; the next start repairs what is not written in time."""
        if self._timer is not None:
            self._timer.cancel()
        self._take_usage(self._second_ms)
        if self._shared is not None:
            self._shared.publish_all(now_ms())  # the files have no usage that other processes do not know
        self.meter.finish(self.writer.hand_over_last)
        loop = asyncio.get_running_loop()
        done = await loop.run_in_executor(None, self.writer.stop, STOP_S)
        if done:
            self._buffer.close()
        for sink in (self._topic, self._uploader):
            if sink is not None:
                done = await loop.run_in_executor(None, sink.stop, STOP_S) and done
        if not done:
            log.warning(
                "metering_not_finished", directory=str(self._directory), remedy="the next start, or sluice meter repair, completes it"
            )
        os.close(self._lock)

    def wall_ms(self) -> int:
        """Return the wall-clock time of this run in ms, which never decreases."""
        return now_ms() + self._offset_ms

    def _tick(self) -> None:
        now = self.wall_ms()
        to_second_s = (SECOND_MS - now % SECOND_MS) / 1_000
        self._timer = asyncio.get_running_loop().call_later(min(FLUSH_S, to_second_s), self._tick)
        second_ms = now // SECOND_MS * SECOND_MS
        if second_ms > self._second_ms:
            if self.writer.waiting_bytes <= WAITING_BYTES_MAX // 2:  # otherwise it stays in the counters
                self._take_usage(second_ms - SECOND_MS)
            self._second_ms = second_ms
        self.meter.flush()

    def _take_usage(self, second_ms: int) -> None:
        """Record the usage of the second that ended, and of earlier ones that were not recorded."""
        for fact in usage_facts(self.meter.usage, self._names, second_ms, self._scopes.node_id):
            self.meter.add_fact(fact)
        for fact in shares_fact(self.meter.shares, second_ms, now_ms()):
            self.meter.add_fact(fact)


def _sensor_of(config: Config) -> dict[str, int]:
    return {"num_samples": config.quotas.window_num, "window_ms": config.quotas.window_size_seconds * 1_000}


def _shared_with(shared: SharedUsage | None) -> dict[str, Any]:
    """Return the manifest's setting on shared usage."""
    if shared is None:
        return {}
    return {
        SHARED: {
            "segment": shared.segment.identity,
            "worker": shared.worker,
            "workers": shared.segment.workers,
            "numbers": shared.numbers,
        }
    }


def _source_of(config: Config) -> str:
    if config.quotas.store != "file":
        return config.quotas.store
    sha256 = _sha256_of(config.quotas.path)
    return "static" if sha256 is None else f"sha256:{sha256}"


def _sha256_of(path: Path | None) -> str | None:
    if path is None:
        return None
    with contextlib.suppress(OSError):
        return hashlib.sha256(path.read_bytes()).hexdigest()
    return None


def _buffer(path: Path) -> DecisionBuffer:
    """Return a mapped buffer, or without shared memory one of this process; the loss by a kill is then unknown."""
    try:
        return DecisionBuffer(path)
    except OSError:
        return DecisionBuffer()


def _lock(directory: Path, proxy_id: str) -> int:
    """Lock the directory for this proxy id as long as this process runs."""
    try:
        make_directory(directory / SEGMENTS)
        descriptor = os.open(lock_path(directory, proxy_id), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    except OSError as error:
        raise StartError(f"metering.dir: {directory} cannot be written: {error.strerror or error}; name a directory that can") from error
    if try_lock(descriptor):
        return descriptor
    os.close(descriptor)
    raise StartError(f"metering.dir: another process meters into {directory} as {proxy_id}; set another metering.proxy_id or directory")


def _log_problem(problem: str | None) -> None:
    if problem is None:
        log.info("metering_written_again")
    else:
        log.warning("metering_not_written", limit_key="metering_not_written", problem=problem)


def _log_upload_problem(problem: str | None) -> None:
    if problem is None:
        log.info("metering_uploaded_again")
    else:
        log.warning("metering_not_uploaded", limit_key="metering_not_uploaded", problem=problem)


def _log_lost(file_sets: int) -> None:
    log.warning("metering_lost", file_sets=file_sets, remedy="raise metering.upload.local_bytes_max, or make the object store reachable")


def _log_topic_problem(problem: str | None) -> None:
    if problem is None:
        log.info("metering_published_again")
    else:
        log.warning("metering_not_published", limit_key="metering_not_published", problem=problem)
