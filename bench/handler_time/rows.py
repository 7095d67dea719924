"""A Sluice that also records the input of its estimator of request time; `bench.handler_time.replay` replays it offline.

SLUICE_ROWS=FILE python -m bench.handler_time.rows run ...          like `sluice run ...`
"""

import atexit
import itertools
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Any

from protocol.request_head import RequestHead
from proxy.handler_time import BrokerHandlerTime, ConnectionHandlerTime, Work
from proxy.session.request_context import RequestContext
from proxy.session.requests.classifier import RequestClassifier
from proxy.session.responses import answer_verdicts
from sluice_cli.__main__ import main

WHOLE, HEAD, END, PAUSE, RESUME = range(5)
ROW = Struct("<BBBIHiiqqq")
ROWS_VARIABLE = "SLUICE_ROWS"


@dataclass(frozen=True, slots=True)
class Row:
    """One input: a complete answer, the beginning or the end of one, or a pause or resumption of reading."""

    kind: int
    last: int
    broker: int
    connection: int
    client: int
    key: int
    size: int
    forwarded_ns: int
    now_ns: int
    rtt_ns: int


def read_rows(path: Path) -> Iterator[Row]:
    """Return the rows of a file in order."""
    data = path.read_bytes()
    return (Row(*values) for values in ROW.iter_unpack(data[: len(data) // ROW.size * ROW.size]))


def read_clients(path: Path) -> list[str]:
    """Return the client-ids by their number in the rows."""
    return json.loads(path.with_suffix(".clients").read_text())


class ClientWork(Work):
    """The work of one client's requests."""

    client = 0


class Recorder:
    """The file that rows are written to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("wb", buffering=1 << 20)
        self._clients: dict[str, int] = {}
        self._brokers: dict[BrokerHandlerTime, int] = {}
        self._connections = itertools.count(1)
        atexit.register(self._close)

    def tag(self, work: Work | None, client_id: str) -> Work | None:
        """Return the same work with the number of its client."""
        if work is None:
            return None
        tagged = ClientWork.__new__(ClientWork)
        for slot in Work.__slots__:
            setattr(tagged, slot, getattr(work, slot))
        tagged.client = self._clients.setdefault(client_id, len(self._clients))
        return tagged

    def connection(self) -> int:
        """Return a number for a new connection."""
        return next(self._connections)

    def write(self, kind: int, last: bool, times: Any, work: Any, size: int, forwarded_ns: int, now_ns: int) -> None:
        """Write one row."""
        broker = self._brokers.setdefault(times.broker, len(self._brokers))
        client, key = (0, 0) if work is None else (work.client, work.key)
        self._file.write(ROW.pack(kind, last, broker, times.number, client, key, size, forwarded_ns, now_ns, times.rtt_ns))

    def _close(self) -> None:
        self._file.close()
        self._path.with_suffix(".clients").write_text(json.dumps(list(self._clients)))


class RecordedConnection(ConnectionHandlerTime):
    """Answers as usual, and records the input."""

    recorder: Recorder

    def __init__(self, broker: BrokerHandlerTime) -> None:
        super().__init__(broker)
        self.number = self.recorder.connection()

    def charge(self, work: Work, size: int, forwarded_ns: int, now_ns: int, behind_bytes: int) -> float:
        self.recorder.write(WHOLE, not behind_bytes, self, work, size, forwarded_ns, now_ns)
        return super().charge(work, size, forwarded_ns, now_ns, behind_bytes)

    def charge_head(self, work: Work, size: int, forwarded_ns: int, now_ns: int) -> float:
        self.recorder.write(HEAD, False, self, work, size, forwarded_ns, now_ns)
        return super().charge_head(work, size, forwarded_ns, now_ns)

    def charge_end(self, now_ns: int) -> float:
        self.recorder.write(END, False, self, None, 0, 0, now_ns)
        return super().charge_end(now_ns)

    def pause(self) -> None:
        self.recorder.write(PAUSE, False, self, None, 0, 0, 0)
        super().pause()

    def resume(self, now_ns: int) -> None:
        self.recorder.write(RESUME, False, self, None, 0, 0, now_ns)
        super().resume(now_ns)


def install(recorder: Recorder) -> None:
    """Let every connection of this process record its input."""
    RecordedConnection.recorder = recorder
    answer_verdicts.ConnectionHandlerTime = RecordedConnection
    make = RequestClassifier._make

    def make_recorded(heads: RequestClassifier, head: RequestHead, name: str, prefix: bytes, *, precedes_login: bool) -> RequestContext:
        known = make(heads, head, name, prefix, precedes_login=precedes_login)
        known.work = recorder.tag(known.work, name)
        return known

    RequestClassifier._make = make_recorded


if __name__ == "__main__":
    install(Recorder(Path(os.environ[ROWS_VARIABLE])))
    main()
