"""The chain of digests of audit log lines."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.quota_admin.audit.chain import START, append_line, read_line, verify

NAMES = st.text(max_size=20)
EVENTS = st.lists(
    st.dictionaries(NAMES.map(lambda name: f"x{name}"), NAMES | st.none() | st.integers(), max_size=3), min_size=1, max_size=8
)


def chain(events: list[dict[str, object]]) -> list[bytes]:
    lines, link = [], START
    for at, event in enumerate(events):
        line, link = append_line(link, event, 1_700_000_000.25 + at)
        lines.append(line)
    return lines


@given(EVENTS)
def test_a_chain_is_whole(events: list[dict[str, object]]) -> None:
    """A chain of any events verifies, and each line is ASCII on one line that reads back as its event."""
    lines = chain(events)
    assert verify(lines)._replace(last=START) == (len(events), 1, START, [])
    for at, (line, event) in enumerate(zip(lines, events, strict=True), 1):
        assert all(0x20 <= byte < 0x7F for byte in line)
        assert read_line(line) == {"seq": at, "time": json.loads(line)["time"], "prev": json.loads(line)["prev"], **event}


@given(EVENTS, st.data())
def test_no_line_can_be_changed_dropped_or_moved(events: list[dict[str, object]], data: st.DataObject) -> None:
    """Changing, dropping, moving or repeating any line but the last fails verification."""
    lines = chain([*events, {}])
    at = data.draw(st.integers(0, len(lines) - 2))
    byte = data.draw(st.integers(0, len(lines[at]) - 1))
    changed = bytearray(lines[at])
    changed[byte] ^= 1
    assert verify([*lines[:at], bytes(changed), *lines[at + 1 :]]).problems
    if at:
        assert verify([*lines[:at], *lines[at + 1 :]]).problems
    assert verify([*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]]).problems
    assert verify([*lines, lines[at]]).problems


def test_a_file_may_begin_where_another_ended() -> None:
    """A file that begins in the middle of a chain verifies on its own."""
    lines = chain([{}, {}, {}, {}])
    assert verify(lines[2:]) == (2, 3, verify(lines).last, [])


def test_what_is_wrong_is_named() -> None:
    """Verification reports each problem with its line number, up to 20 problems."""
    lines = chain([{"a": 1}, {"b": 2}, {"c": 3}])
    assert verify([lines[0], b"garbage", lines[1]]).problems == ["line 2 is not a line of an audit log"]
    assert verify([lines[0], lines[2]]).problems == [
        "line 2 has number 3 and should have 2",
        "line 2 (number 3) does not follow the line before it: that one was changed, or one is missing",
    ]
    assert len(verify([b"x"] * 1_000).problems) == 20


@pytest.mark.parametrize(
    "line", [b"", b"[]", b"1", b"{}", b'{"seq":"1","prev":""}', b'{"seq":0,"prev":""}', b'{"seq":true,"prev":""}', b"\xff", b"[" * 9_999]
)
def test_what_is_no_line(line: bytes) -> None:
    """Bytes that are not a line of an audit log are read as None."""
    assert read_line(line) is None
