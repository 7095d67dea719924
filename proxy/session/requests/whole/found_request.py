"""A request that a scan has found, and how the scan continues after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from protocol.limits import LENGTH_BYTES
from proxy.session.request_context import RequestContext
from proxy.session.requests.pending_requests import INT32


@dataclass(slots=True)
class FoundRequest:
    """A request whose head was found in the bytes of one scan.

    Attributes:
        context: its context.
        data: the bytes of the scan; those from `start` to `at` are forwarded, and the request begins at `at`.
        size: length of the request, without its length field.
        now_ms: monotonic milliseconds; `now_ns` is the same time in nanoseconds.
        read_ms: when it was read.
        may_wait: False: Sluice drains, and nothing waits any more.
    """

    context: RequestContext
    data: bytes | bytearray
    start: int
    at: int
    size: int
    now_ms: int
    now_ns: int
    read_ms: int
    may_wait: bool

    @property
    def end(self) -> int:
        """The offset of its end, which may be behind the available bytes."""
        return self.at + LENGTH_BYTES + self.size

    @property
    def correlation_id(self) -> int:
        """Its correlation id."""
        (correlation_id,) = INT32.unpack_from(self.data, self.at + LENGTH_BYTES + INT32.size)
        return int(correlation_id)

    @property
    def frame(self) -> memoryview:
        """Its available bytes."""
        return memoryview(self.data)[self.at : self.end]


class ScanStep(NamedTuple):
    """How a scan continues after a request.

    Attributes:
        data: the bytes to forward.
        at: offset of the next request in them.
        noted: number of requests entered in the FIFO.
        goes_on: whether scanning continues.
    """

    data: bytes | bytearray
    at: int
    noted: int
    goes_on: bool


def stopped(request: FoundRequest, noted: int = 0) -> ScanStep:
    """Forward only what is before the request."""
    return ScanStep(request.data[: request.at], request.at, noted, goes_on=False)


def left_out(request: FoundRequest, noted: int) -> ScanStep:
    """Leave the request out, and continue behind it."""
    return ScanStep(request.data[: request.at] + request.data[request.end :], request.at, noted, goes_on=True)
