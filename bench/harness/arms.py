"""The proxies of a load: the bare pump, Sluice, and HAProxy and Envoy where they are installed."""

import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.harness.alike import alike
from bench.harness.engine import HOST, ROOT, tree
from bench.harness.frames import metadata_request
from tests.support.ports import free_bootstrap_port, free_port

START_SECONDS_MAX = 20
UNREACHABLE_QUOTA = 1_000_000_000_000  # bytes per second: enforced and metered on every request, never exceeded


@dataclass
class Arm:
    """A running proxy; the load is sent to `port`."""

    name: str
    process: subprocess.Popen[bytes]
    port: int
    admin: str | None = None
    bootstrap: str = ""
    log: Path | None = None
    quotas: Path | None = None
    stop_signal: int = signal.SIGKILL

    def pids(self) -> list[int]:
        """Return its process and children."""
        return tree(self.process.pid)

    def workers(self) -> list[int]:
        """Return the workers of a supervisor."""
        return [pid for pid in self.pids() if Path(f"/proc/{pid}/comm").read_text().strip() == "sluice-worker"]

    def stop(self) -> None:
        """End the process and wait."""
        self.process.send_signal(self.stop_signal)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def metric(self, name: str, *labels: str) -> float | None:
        """Return one value from /metrics, the largest of the series with these `labels`; None where it is not served."""
        if self.admin is None:
            return None
        with urllib.request.urlopen(f"http://{self.admin}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        series = [line for line in lines if line.split("{")[0].split(" ")[0] == name and all(part in line for part in labels)]
        values = [float(line.rsplit(" ", 1)[1]) for line in series]
        return max(values, default=None)


Starter = Callable[[int, Path], Arm]


def start_pump(upstream_port: int, folder: Path) -> Arm:
    """Start the bare pump, the unit of the cost table."""
    port = free_port()
    process = _child([sys.executable, "-m", "bench.harness.pump", str(port), str(upstream_port)])
    return _when_listening(Arm("pump", process, port))


def start_direct(upstream_port: int, folder: Path) -> Arm:
    """Return no proxy at all: for the accuracy and fault benches."""
    return Arm("direct", _child(["sleep", "infinity"]), upstream_port)


def quota_file(folder: Path, produce: float | None, fetch: float | None, request: float | None = None) -> Path:
    """Write quotas.toml with one default client-id quota, or with none when no value is given."""
    values = {"request_percentage": request, "producer_byte_rate": produce, "consumer_byte_rate": fetch}
    lines = [f"{key} = {value}" for key, value in values.items() if value]
    path = folder / f"quotas-{free_port()}.toml"
    path.write_text("\n".join(["[[quota]]", 'client-id = "<default>"', *lines, ""]) if lines else "")
    return path


def start_sluice(
    upstream_port: int,
    folder: Path,
    *,
    produce: float | None = UNREACHABLE_QUOTA,
    fetch: float | None = UNREACHABLE_QUOTA,
    request: float | None = None,
    flags: Sequence[str] = (),
    module: str = "sluice_cli",
    learn: bool = True,
    open_files: int | None = None,
    enter: Path | None = None,
    seed: int | None = None,
    administered: bool = True,
    checkout: Path = ROOT,
) -> Arm:
    """`sluice run` as a gateway in front of one broker.

    Args:
        upstream_port: the broker's port.
        module: the module to run; a bench may have a Sluice that also records data.
        folder: for the quota file and the log.
        produce, fetch: the default client-id quota in bytes per second, None for none.
        request: the default request quota in percent of one thread.
        flags: further arguments of the command line.
        learn: ask for Metadata, so that the load goes to the broker's own port; without it, to the bootstrap port.
        open_files: a low limit on file descriptors, if any.
        enter: the file of a control group that its process enters.
        administered: whether it has an admin port.
        checkout: the checkout whose source runs.
        seed: hash seed of processes with an equal layout; None: the system's defaults.
    """
    port, admin = free_bootstrap_port(), f"{HOST}:{free_port()}"
    quotas = quota_file(folder, produce, fetch, request)
    command = [sys.executable, "-m", module, "run", "--listen", f"{HOST}:{port}", "--upstream", f"{HOST}:{upstream_port}"]
    command += ["--quotas", str(quotas), *(["--admin", admin] if administered else []), *flags]
    if seed is not None:
        command = alike(command, seed)
    log = folder / f"sluice-{port}.log"
    arm = _when_listening(
        Arm(
            "sluice",
            _child(_entering(_limited(command, open_files), enter), log, checkout),
            port,
            admin if administered else None,
            f"{HOST}:{port}",
            log,
            quotas,
            signal.SIGTERM,
        )
    )
    if learn:
        arm.port = _learnt_port(arm)
    return arm


def _limited(command: list[str], open_files: int | None) -> list[str]:
    return command if open_files is None else ["sh", "-c", f'ulimit -n {open_files}; exec "$@"', "sh", *command]


def _entering(command: list[str], group: Path | None) -> list[str]:
    return command if group is None else ["sh", "-c", f'echo $$ > {group}; exec "$@"', "sh", *command]


def start_haproxy(upstream_port: int, folder: Path) -> Arm:
    """Start HAProxy in TCP mode with one thread."""
    port = free_port()
    config = folder / "haproxy.cfg"
    config.write_text(
        "global\n  nbthread 1\n  maxconn 5000\ndefaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n"
        f"frontend f\n  bind {HOST}:{port}\n  default_backend b\nbackend b\n  server s {HOST}:{upstream_port}\n"
    )
    return _when_listening(Arm("haproxy", _child(["haproxy", "-db", "-f", str(config)]), port))


ENVOY = """
static_resources:
  listeners:
  - address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.tcp_proxy
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
          stat_prefix: bench
          cluster: broker
  clusters:
  - name: broker
    type: STATIC
    connect_timeout: 5s
    load_assignment:
      cluster_name: broker
      endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {upstream}}}}}}}}}]}}]
    circuit_breakers: {{thresholds: [{{max_connections: 20000, max_pending_requests: 20000}}]}}
"""


def start_envoy(upstream_port: int, folder: Path) -> Arm:
    """Start Envoy's TCP proxy with one worker."""
    port = free_port()
    config = folder / "envoy.yaml"
    config.write_text(ENVOY.format(port=port, upstream=upstream_port))
    command = ["envoy", "-c", str(config), "--concurrency", "1", "--log-level", "error", "--disable-hot-restart"]
    return _when_listening(Arm("envoy", _child(command), port))


def starters() -> tuple[dict[str, Starter], list[str]]:
    """Return the installed proxies by name, and the names of those that are not installed."""
    found: dict[str, Starter] = {"pump": start_pump, "sluice": start_sluice}
    missing = []
    for name, starter in (("haproxy", start_haproxy), ("envoy", start_envoy)):
        if shutil.which(name):
            found[name] = starter
        else:
            missing.append(name)
    return found, missing


def _child(command: Sequence[str], log: Path | None = None, checkout: Path = ROOT) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with (log or Path(os.devnull)).open("ab") as output:
        return subprocess.Popen(command, cwd=checkout, env=environment, stdin=subprocess.PIPE, stdout=output, stderr=output)


def _when_listening(arm: Arm) -> Arm:
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        if arm.process.poll() is not None:
            said = arm.log.read_text()[-2_000:] if arm.log else ""
            raise RuntimeError(f"{arm.name} ended with exit code {arm.process.returncode} at start\n{said}")
        try:
            socket.create_connection((HOST, arm.port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return arm
    arm.stop()
    raise RuntimeError(f"{arm.name} did not listen within {START_SECONDS_MAX} s")


def _learnt_port(arm: Arm) -> int:
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            return advertised_port(arm.port)
        except OSError:
            if time.monotonic() > deadline or arm.process.poll() is not None:
                arm.stop()
                raise
            time.sleep(0.1)


def advertised_port(bootstrap_port: int) -> int:
    """Ask for Metadata v12 as a client does; return the port of the single broker."""
    answer = _exchange(bootstrap_port, metadata_request(12).whole())
    at = 4 + 4 + 1 + 4 + 1 + 4  # length, correlation id, tags, throttle time, broker count, node id
    host_length = answer[at] - 1
    (port,) = struct.unpack_from(">i", answer, at + 1 + host_length)
    return port


def _exchange(port: int, request: bytes) -> bytes:
    with socket.create_connection((HOST, port), 5) as connection:
        connection.sendall(request)
        stream = connection.makefile("rb")
        length = stream.read(4)
        if len(length) < 4:
            raise OSError("closed instead of an answer to Metadata")
        return length + stream.read(int.from_bytes(length, "big"))
