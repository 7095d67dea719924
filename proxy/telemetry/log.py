"""Events as JSON, one line each, written by a thread so that a slow reader of stderr never delays traffic.

Values that a client can choose (its id, its user name, a topic) are escaped and cut; lines of one key are limited; a full queue drops
lines and reports their number.
"""

from __future__ import annotations

import datetime
import json
import logging
import math
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any, Final, TextIO

from proxy.base.clock import wall_time_s

VALUE_CHARS_MAX: Final = 256
STACK_CHARS_MAX: Final = 16_384
LIST_ITEMS_MAX: Final = 32
QUEUE_LINES_MAX: Final = 10_000
LINES_PER_SECOND_MAX: Final = 10
"""Per key; a key is the name of an event unless the caller gives a finer one."""
KEYS_MAX: Final = 1_000
STOP_SECONDS_MAX: Final = 2.0

LOGGER: Final = logging.getLogger("sluice")

_handlers: Final[list[EventHandler]] = []
"""The active handlers: a search in the handlers of `logging` would slow short connections."""
_ESCAPE: Final = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"), default=str).encode


class Stack(str):
    """A text of many lines that Sluice made, such as a traceback, which may be longer than other values."""

    __slots__ = ()


def debug(event: str, /, *, limit_key: str = "", **fields: object) -> None:
    """Log an event for developers."""
    _write(logging.DEBUG, event, limit_key, fields)


def info(event: str, /, *, limit_key: str = "", **fields: object) -> None:
    """Log an event."""
    _write(logging.INFO, event, limit_key, fields)


def info_of(event: str, /, *, limit_key: str, fields: Callable[[], dict[str, object]]) -> None:
    """Log a frequent event: `fields` is called only for a line within the limit."""
    if LOGGER.isEnabledFor(logging.INFO) and _within_limit(limit_key):
        _write(logging.INFO, event, limit_key, fields())


def warning(event: str, /, *, limit_key: str = "", **fields: object) -> None:
    """Log an event that an operator should check."""
    _write(logging.WARNING, event, limit_key, fields)


def error(event: str, /, *, limit_key: str = "", exception: BaseException | None = None, **fields: object) -> None:
    """Log an error of Sluice; `exception` adds its traceback."""
    _write(logging.ERROR, event, limit_key, fields, exception)


def _write(level: int, event: str, limit_key: str, fields: dict[str, object], exception: BaseException | None = None) -> None:
    if LOGGER.isEnabledFor(level):
        LOGGER.log(level, event, extra={"fields": fields, "limit_key": limit_key or event}, exc_info=exception)


def _within_limit(limit_key: str) -> bool:
    """Whether a line of a key is within the limit; if not, it counts as left out."""
    second = int(wall_time_s())
    for handler in _handlers:  # noqa: SIM110 - one handler as a rule; each connection that ends comes here
        if not handler.has_room(limit_key, second):
            return False
    return True


class RateLimit:
    """At most `LINES_PER_SECOND_MAX` lines of a key in a second; the rest is counted."""

    def __init__(self) -> None:
        self._windows: dict[str, list[int]] = {}  # key: second, lines in it, lines left out since the last one written

    def left_out(self, key: str, second: int) -> int | None:
        """Return how many lines of `key` were left out before this one, or None when this one is left out too."""
        window = self._window(key, second)
        if window[0] != second:  # also when a clock goes back
            window[0], window[1] = second, 0
        if window[1] >= LINES_PER_SECOND_MAX:
            window[2] += 1
            return None
        window[1] += 1
        left_out, window[2] = window[2], 0
        return left_out

    def has_room(self, key: str, second: int) -> bool:
        """Return whether a line of `key` would be written; if not, it counts as left out."""
        window = self._window(key, second)
        if window[0] != second or window[1] < LINES_PER_SECOND_MAX:
            return True
        window[2] += 1
        return False

    def unreported(self) -> dict[str, int]:
        """Return the number of lines left out by key, for keys without a line after them."""
        return {key: window[2] for key, window in self._windows.items() if window[2]}

    def _window(self, key: str, second: int) -> list[int]:
        window = self._windows.get(key)
        if window is None:
            if len(self._windows) >= KEYS_MAX:
                key = "__other__"
            window = self._windows.setdefault(key, [second, 0, 0])
        return window


class LineWriter(threading.Thread):
    """The only writer of the stream."""

    def __init__(self, stream: TextIO, lines_max: int = QUEUE_LINES_MAX) -> None:
        super().__init__(name="sluice-log", daemon=True)
        self._stream = stream
        self._lines: queue.Queue[dict[str, Any] | None] = queue.Queue(lines_max)
        self.dropped = 0

    def put(self, line: dict[str, Any]) -> None:
        """Queue a line without waiting; when the queue is full, drop and count it."""
        if self.dropped:
            line["dropped"] = self.dropped
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self.dropped += 1
        else:
            self.dropped = 0

    def run(self) -> None:
        """Write until `stop`; a closed stream does not end the thread."""
        while (line := self._lines.get()) is not None:
            try:
                self._stream.write(to_json(line))
                self._stream.flush()
            except (OSError, ValueError):
                continue

    def stop(self) -> None:
        """Write the queued lines and end; give up on a stream that blocks for longer than `STOP_SECONDS_MAX`."""
        try:
            self._lines.put(None, timeout=STOP_SECONDS_MAX)
        except queue.Full:
            return
        self.join(STOP_SECONDS_MAX)


class EventHandler(logging.Handler):
    """Converts records, of Sluice and of libraries, to lines for a `LineWriter`."""

    def __init__(self, writer: LineWriter, worker: int | None = None) -> None:
        super().__init__()
        self._writer = writer
        self._worker = worker
        self._limit = RateLimit()

    def emit(self, record: logging.LogRecord) -> None:
        """Hand over one record as a line."""
        left_out = self._limit.left_out(getattr(record, "limit_key", record.name), int(record.created))
        if left_out is None:
            return
        line = _line_of(record)
        if self._worker is not None:
            line["worker"] = self._worker
        if left_out:
            line["left_out"] = left_out
        self._writer.put(line)

    def has_room(self, key: str, second: int) -> bool:
        """Return whether a line of `key` would be written; if not, it counts as left out."""
        return self._limit.has_room(key, second)

    def close(self) -> None:
        """Report the lines left out last, and stop the writer."""
        for key, count in self._limit.unreported().items():
            self._writer.put({"level": "warning", "event": "log_lines_left_out", "key": key, "left_out": count})
        self._writer.stop()
        super().close()


def start_logging(level: str, stream: TextIO | None = None, worker: int | None = None) -> EventHandler:
    """Send all events from `level` on, and warnings of libraries, to `stream` (stderr). `stop_logging` ends it.

    Args:
        worker: number of the worker in each line; None: there are no workers, or this is the supervisor.
    """
    writer = LineWriter(sys.stderr if stream is None else stream)
    writer.start()
    handler = EventHandler(writer, worker)
    LOGGER.setLevel(level.upper())
    root = logging.getLogger()
    root.setLevel(logging.WARNING)
    root.addHandler(handler)
    _handlers.append(handler)
    logging.captureWarnings(True)
    return handler


def stop_logging(handler: EventHandler) -> None:
    """Write the queued lines, within `STOP_SECONDS_MAX` twice."""
    logging.captureWarnings(False)
    logging.getLogger().removeHandler(handler)
    _handlers.remove(handler)
    handler.close()


def to_json(line: dict[str, Any]) -> str:
    """Return `line` as one line of ASCII JSON: it contains no control, escape or direction characters."""
    return _ESCAPE(line).replace("\x7f", "\\u007f") + "\n"


def _line_of(record: logging.LogRecord) -> dict[str, Any]:
    at = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
    line: dict[str, Any] = {"time": at.isoformat(timespec="milliseconds"), "level": record.levelname.lower()}
    fields = getattr(record, "fields", None)
    if fields is None:  # a library's record
        line.update(event="library", logger=record.name, message=_plain(record.getMessage()))
    else:
        line["event"] = record.getMessage()
        line.update((name, _plain(value)) for name, value in fields.items())
    if record.exc_info and record.exc_info[1] is not None:
        line["exception"] = logging.Formatter().formatException(record.exc_info)[-STACK_CHARS_MAX:]
    return line


def _plain(value: object) -> Any:
    """Return a copy of `value` of JSON types, so that it does not change while it is queued."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, list | tuple | set | frozenset) and not hasattr(value, "_fields"):
        return [_plain(item) for item in list(value)[:LIST_ITEMS_MAX]]
    if isinstance(value, Stack):
        return str(value)[:STACK_CHARS_MAX]
    text = str(value)
    return text if len(text) <= VALUE_CHARS_MAX else text[: VALUE_CHARS_MAX - 1] + "…"
