"""The process of a worker: `python -m proxy.workers.main LINK PASSING QUESTIONS SEGMENT`, started only by the supervisor.

The arguments are numbers of descriptors that the supervisor opened.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from pathlib import Path

import uvloop

from proxy.app.open_files import fit_open_files
from proxy.app.profiling import profiled
from proxy.app.run import SWITCH_INTERVAL_S
from proxy.base.errors import StartError
from proxy.config.load import ConfigSource, GivenConfig
from proxy.config.model import Config
from proxy.config.problem import ConfigProblems
from proxy.fleet.keys import keys_of
from proxy.shared_usage.segment import Segment
from proxy.shared_usage.shared_usage import SharedUsage
from proxy.telemetry import log
from proxy.workers.messaging.link import LENGTH, Link
from proxy.workers.messaging.messages import AnyMessage, Failed, Request, Start, decoded
from proxy.workers.messaging.questions import Questions
from proxy.workers.worker import Worker, config_of_worker


def main(arguments: list[str]) -> int:
    """Serve connections until the supervisor ends this worker; return the exit code."""
    link, passing, questions = (socket.socket(fileno=int(number)) for number in arguments[:3])
    segment = Segment(int(arguments[3]))
    start = first_message(link)
    if start is None:
        return 1
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    for sig in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR2):  # sent to the whole process group: the supervisor handles it
        signal.signal(sig, signal.SIG_IGN)
    source = GivenConfig(None if start.config_path is None else Path(start.config_path), start.flags, start.config_text)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(start, source, link, passing, Questions(questions), segment))


def first_message(link: socket.socket) -> Start | None:
    """Return the first message of the supervisor; None: it has ended, or sent another message."""
    size = _received(link, LENGTH.size)
    data = None if size is None else _received(link, LENGTH.unpack(size)[0])
    message = None if data is None else decoded(data)
    return message if isinstance(message, Start) else None


def _received(link: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        more = link.recv(size - len(data))
        if not more:
            return None
        data += more
    return bytes(data)


async def _serve(
    start: Start, source: ConfigSource, link_socket: socket.socket, passing: socket.socket, questions: Questions, segment: Segment
) -> int:
    loop = asyncio.get_running_loop()
    worker: Worker | None = None
    early: list[AnyMessage] = []
    lost = asyncio.Event()

    def received(message: AnyMessage) -> None:
        if worker is None:
            early.append(message)
        else:
            worker.received(message)

    async def answer(request: Request) -> bytes:
        assert worker is not None
        return await worker.answer(request)

    def ended() -> None:
        lost.set()
        if worker is not None and not worker.ended.is_set():
            worker.supervisor_lost()

    link = await Link.over(link_socket, received, answer, ended)
    handler = None
    try:
        config = fit_open_files(source.load())
        handler = log.start_logging(config.log.level, worker=start.number)
        own = config_of_worker(config, start.number, len(start.numbers))
        worker = Worker(own, source, questions, shared_usage_of(own, segment, start))
        loop.set_exception_handler(worker.log_exception)
        loop.add_signal_handler(signal.SIGTERM, worker.terminate)
        worker.start(link, passing)
        for message in early:
            worker.received(message)
        if lost.is_set():  # while this process started
            worker.supervisor_lost()
    except (ConfigProblems, StartError) as error:
        link.send(Failed(source.located(error.problems).lines() if isinstance(error, ConfigProblems) else [str(error)]))
        link.close()
        await lost.wait()
        return 2
    data_path = worker.data_path
    try:
        with profiled(f"worker {start.number}", lambda: data_path.requests, wanted=config.profile):
            await worker.ended.wait()
    finally:
        await worker.stop()
        link.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await lost.wait()
        if handler is not None:
            log.stop_logging(handler)
    return 0


def shared_usage_of(config: Config, segment: Segment, start: Start) -> SharedUsage:
    """Return this worker's part of the shared usage.

    Raises:
        ConfigProblems: the secret of the fleet cannot be read any more.
    """
    digests = b"" if config.fleet is None else keys_of(config.fleet).digests
    return SharedUsage(segment, start.number, numbers=start.numbers, fleet_key=digests)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
