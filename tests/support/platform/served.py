"""An installed Sluice that serves a real client: its configuration, its process, and records through it."""

import contextlib
import os
import signal
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, Producer

from tests.support.ports import free_bootstrap_port, free_port
from tests.support.tls.certificates import Authority

START_SECONDS = 60
STOP_SECONDS = 30
TIMEOUT_SECONDS = 60
RECORDS = 100
TOPIC = "records"
SLUICE_UID = 10_001


class ServedSluice:
    """`sluice run` with a configuration in a folder; it is ready inside the block, and ends with it.

    Args:
        folder: gets sluice.toml and quotas.toml.
        command: the command, with its arguments; it reads the file that `config_place` names.
        upstream: bootstrap addresses of the brokers.
        tls: whether the admin port uses TLS.
        metering: the metering directory as the process sees it; None: no metering.
    """

    def __init__(self, folder: Path, command: Sequence[str], upstream: str, *, tls: bool = False, metering: str | None = None) -> None:
        self._command = list(command)
        self._log = folder.parent / f"{folder.name}.log"
        self._tls = tls
        self._admin_port = free_port()
        self.port = free_bootstrap_port()
        self._process: subprocess.Popen[bytes] | None = None
        _configure(folder, self.port, self._admin_port, upstream, tls=tls, metering=metering)

    def output(self) -> str:
        """Return what the process has printed."""
        return self._log.read_text(errors="replace")

    def is_ready(self) -> bool:
        """Whether /readyz answers 200."""
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        url = f"http{'s' if self._tls else ''}://127.0.0.1:{self._admin_port}/readyz"
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5, context=context) as answer:  # noqa: S310 - as written above
            return bool(answer.status == 200)
        return False

    def user_ids(self) -> set[int]:
        """Return the real user ids of the Python processes that run `sluice run`."""
        return {_uid_of(pid) for pid in self._sluices()}

    def stop(self) -> int:
        """End Sluice by SIGTERM; return the exit code of the command. buildah would kill it instead, so it gets no signal."""
        assert self._process is not None
        os.kill(next(self._sluices()), signal.SIGTERM)
        return self._process.wait(STOP_SECONDS)

    def _sluices(self) -> Iterator[int]:
        """Yield the processes of Sluice, the first one before those that it started."""
        assert self._process is not None
        for pid in _descendants(self._process.pid):
            words = _read(pid, "cmdline").split(b"\0")
            if b"python" in words[0] and b"run" in words:
                yield pid

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        deadline = time.monotonic() + START_SECONDS
        while not self.is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._kill()
                raise AssertionError(f"sluice is not ready:\n{self.output()[-3_000:]}")
            time.sleep(0.05)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired, StopIteration):
                self.stop()
        self._kill()

    def _kill(self) -> None:
        """Kill the process and its children if they still run."""
        assert self._process is not None
        for pid in self._sluices():
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _configure(folder: Path, port: int, admin_port: int, upstream: str, *, tls: bool, metering: str | None) -> None:
    """Write sluice.toml and quotas.toml, and the files that they name, for the user of the image."""
    lines = ["[upstream]", f'bootstrap = "{upstream}"', 'protocol = "PLAINTEXT"']
    lines += ["[[listener]]", f'address = "127.0.0.1:{port}"', 'protocol = "PLAINTEXT"', f"first_broker_port = {port + 1}"]
    lines += ["[quotas]", 'path = "quotas.toml"', "[admin]", f'address = "127.0.0.1:{admin_port}"']
    if tls:
        files = Authority(folder).issue("admin", hosts=("sluice.example.org",))
        os.chown(files.key, SLUICE_UID, SLUICE_UID)
        lines += ["[admin.tls]", f'certificate = "{files.certificate.name}"', f'key = "{files.key.name}"']
    if metering is not None:
        lines += ["[metering]", f'dir = "{metering}"', "rotate_seconds = 5"]
    (folder / "sluice.toml").write_text("\n".join(lines) + "\n")
    (folder / "quotas.toml").write_text('[[quota]]\nclient-id = "platform"\nproducer_byte_rate = "100MB"\n')


def records_through(port: int) -> int:
    """Produce records through a port of Sluice and consume them there; return how many came back with their own content."""
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}", "client.id": "platform"})
    for number in range(RECORDS):
        producer.produce(TOPIC, str(number).encode())
    assert producer.flush(TIMEOUT_SECONDS) == 0
    with _consumer(port) as consumer:
        deadline, seen = time.monotonic() + TIMEOUT_SECONDS, set[bytes]()
        while len(seen) < RECORDS and time.monotonic() < deadline:
            record = consumer.poll(1.0)
            if record is not None and record.error() is None and record.value() is not None:
                seen.add(record.value())
    return len(seen & {str(number).encode() for number in range(RECORDS)})


@contextlib.contextmanager
def _consumer(port: int) -> Iterator[Consumer]:
    settings = {"bootstrap.servers": f"127.0.0.1:{port}", "client.id": "platform", "group.id": "platform", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([TOPIC])
    try:
        yield consumer
    finally:
        consumer.close()


def _descendants(pid: int) -> Iterator[int]:
    """Yield a process and all processes that it started, as long as their parents live."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            yield from _descendants(int(child))


def _read(pid: int, name: str) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/{name}").read_bytes()
    return b""


def _uid_of(pid: int) -> int:
    return int(_read(pid, "status").split(b"Uid:", 1)[1].split()[0])
