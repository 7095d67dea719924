"""Each log event is one line of JSON, whatever a client puts into it."""

import io
import json
import logging
import threading
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.telemetry import log

HOSTILE = [
    "a\nb",
    'x","level":"forged',
    "\r\n{}",
    "\x1b[2J\x1b]0;title\x07",
    "\x9b31m",
    "\x00",
    "\x7f",
    "\u2028\u2029",
    "\u202e\u2066reversed",
    "\u200b\ufeff",
    "\ud800",
    "\U000e0041",
    "</script>",
    "%s%n{0}",
    "\\",
    "a" * 10_000,
]


def lines_of(say: Callable[[], None], level: str = "info") -> list[dict[str, Any]]:
    """Return what `say` logs."""
    stream = io.StringIO()
    handler = log.start_logging(level, stream)
    try:
        say()
    finally:
        log.stop_logging(handler)
    return [json.loads(line) for line in stream.getvalue().split("\n")[:-1]]


def test_an_event_is_one_line() -> None:
    """A line holds time, level and event, and then the fields in their order."""
    (line,) = lines_of(lambda: log.info("connection_closed", reason="idle", requests=3, seconds=0.5, peer=None, ports=(1, 2)))
    assert list(line) == ["time", "level", "event", "reason", "requests", "seconds", "peer", "ports"]
    assert line["time"].endswith("+00:00")
    assert {**line, "time": ""} == {
        "time": "", "level": "info", "event": "connection_closed",
        "reason": "idle", "requests": 3, "seconds": 0.5, "peer": None, "ports": [1, 2],
    }  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_g5_hostile_text_stays_in_its_value(text: str) -> None:
    """A hostile client-id cannot end the line, forge a field, or contain control characters, and its value is shortened."""
    encoded = log.to_json({"event": "x", "client_id": text})
    assert encoded.endswith("\n")
    assert encoded.isascii()
    assert not any(unicodedata.category(character) == "Cc" for character in encoded[:-1])
    assert json.loads(encoded) == {"event": "x", "client_id": text}
    (line,) = lines_of(lambda: log.info("x", client_id=text))
    assert len(line["client_id"]) <= log.VALUE_CHARS_MAX
    assert line["client_id"][:200] == text[:200]


@given(st.text(alphabet=st.characters(), max_size=300), st.one_of(st.floats(), st.binary(max_size=9), st.lists(st.floats(), max_size=50)))
def test_any_value_gives_a_line_that_parses(text: str, value: object) -> None:
    """A line with any values is ASCII and JSON without NaN."""
    record = logging.LogRecord("sluice", logging.INFO, "", 0, "event", (), None)
    record.fields = {"text": text, "value": value}
    encoded = log.to_json(log._line_of(record))
    assert encoded.isascii()
    assert encoded.count("\n") == 1
    json.loads(encoded, parse_constant=pytest.fail)


def test_levels() -> None:
    """Events below the configured level are not logged."""
    assert [line["event"] for line in lines_of(lambda: (log.debug("a"), log.info("b"), log.warning("c"), log.error("d")), "warning")] == [
        "c",
        "d",
    ]  # type: ignore[func-returns-value]


def test_an_exception_brings_its_traceback_in_one_line() -> None:
    """The traceback of an exception is a field of its line."""

    def fail() -> None:
        try:
            raise RuntimeError("boom\n")
        except RuntimeError as error:
            log.error("internal_error", exception=error)

    (line,) = lines_of(fail)
    assert line["exception"].startswith("Traceback")
    assert "boom" in line["exception"]


def test_libraries_speak_json_too() -> None:
    """A warning of a library is logged as an event, and its info messages are not."""

    def chat() -> None:
        logging.getLogger("some.library").warning("odd %s", "thing")
        logging.getLogger("some.library").info("chatter")

    (line,) = lines_of(chat)
    assert (line["event"], line["logger"], line["message"]) == ("library", "some.library", "odd thing")


def test_a_key_is_limited_and_says_what_was_left_out() -> None:
    """Ten lines per key and second are logged, and the next line tells how many were left out."""
    limit = log.RateLimit()
    assert [limit.left_out("a", 7) for _ in range(12)] == [0] * 10 + [None] * 2
    assert limit.left_out("b", 7) == 0
    assert limit.unreported() == {"a": 2}
    assert [limit.left_out("a", 8) for _ in range(2)] == [2, 0]
    assert limit.unreported() == {}


def test_a_clock_that_goes_back_does_not_silence_the_log() -> None:
    """A clock that goes back begins a new window of the rate limit."""
    limit = log.RateLimit()
    assert [limit.left_out("a", 3_600) for _ in range(11)][-1] is None
    assert limit.left_out("a", 5) == 1


def test_keys_are_bounded() -> None:
    """Keys beyond the size of the table share one limit."""
    limit = log.RateLimit()
    assert sum(limit.left_out(f"key-{n}", 1) is not None for n in range(log.KEYS_MAX + 500)) == log.KEYS_MAX + log.LINES_PER_SECOND_MAX


def test_what_the_limit_swallowed_last_is_reported_at_the_end() -> None:
    """The lines left out of a burst at the end are reported when logging stops."""

    def burst() -> None:
        for _ in range(400):
            log.info("burst")

    lines = lines_of(burst)
    shown = sum(line["event"] == "burst" for line in lines)
    reported = sum(line.get("left_out", 0) for line in lines)
    assert shown + reported == 400
    assert shown < 400


def test_an_unread_stream_delays_no_thread() -> None:
    """While stderr is blocked, lines are dropped and counted, and the next line written tells how many."""
    stuck, release, drained = threading.Event(), threading.Event(), threading.Event()

    class Stuck(io.StringIO):
        def write(self, text: str) -> int:
            stuck.set()
            assert release.wait(60)
            written = super().write(text)
            if json.loads(text)["n"] == 4:
                drained.set()
            return written

    stream = Stuck()
    writer = log.LineWriter(stream, lines_max=4)
    writer.start()
    writer.put({"n": 0})
    assert stuck.wait(60)
    for n in range(1, 10):
        writer.put({"n": n})
    assert writer.dropped == 5
    release.set()
    assert drained.wait(60)
    writer.put({"n": 10})
    writer.stop()
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["n"] for line in lines] == [0, 1, 2, 3, 4, 10]
    assert lines[-1]["dropped"] == 5


def test_a_stream_that_is_gone_ends_nothing() -> None:
    """Writing to a closed stderr neither raises nor stops the writer."""
    stream = io.StringIO()
    stream.close()
    writer = log.LineWriter(stream)
    writer.start()
    writer.put({"n": 1})
    writer.stop()
    assert not writer.is_alive()


def test_fields_of_a_frequent_event_are_made_only_for_lines_that_are_shown() -> None:
    """The fields of an event are built only for lines within the limit, and all other lines are counted."""
    made: list[int] = []

    def fields() -> dict[str, object]:
        made.append(1)
        return {"number": len(made)}

    def say() -> None:
        for _ in range(log.LINES_PER_SECOND_MAX * 5):
            log.info_of("connection_closed", limit_key="idle", fields=fields)

    lines = lines_of(say)
    shown = [line for line in lines if line["event"] == "connection_closed"]
    assert len(made) == len(shown) < log.LINES_PER_SECOND_MAX * 5
    left_out = sum(int(line.get("left_out", 0)) for line in lines)
    assert len(shown) + left_out == log.LINES_PER_SECOND_MAX * 5
