"""A hash chain of lines: each has the digest of the previous line, so a change to one line requires a change to all later ones. No I/O.

A process that can write the file can rewrite it completely. To detect this, store the number and digest of the last line elsewhere.
"""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

BEGINNING: Final = "0" * 64
"""The digest in the first line of a chain."""
PROBLEMS_MAX: Final = 20


class Link(NamedTuple):
    """The end of a chain: the number of its last line and the SHA-256 of its bytes."""

    seq: int
    sha256: str


START: Final = Link(0, BEGINNING)


def append_line(link: Link, event: Mapping[str, Any], wall_time_s: float) -> tuple[bytes, Link]:
    """Return the line of an event, without its line end, and the new end of the chain."""
    time = datetime.datetime.fromtimestamp(wall_time_s, datetime.UTC).isoformat(timespec="milliseconds")
    fields = {"seq": link.seq + 1, "time": time, "prev": link.sha256, **event}
    line = json.dumps(fields, ensure_ascii=True, allow_nan=False, separators=(",", ":")).replace("\x7f", "\\u007f").encode()
    return line, link_of(fields["seq"], line)


def link_of(seq: int, line: bytes) -> Link:
    """Return the end of a chain with the last line `line`."""
    return Link(seq, hashlib.sha256(line).hexdigest())


def read_line(line: bytes) -> dict[str, Any] | None:
    """Return the content of a line; None: it is not a line of a chain."""
    try:
        fields = json.loads(line)
    except ValueError:
        return None
    except RecursionError:
        return None
    sound = isinstance(fields, dict) and type(fields.get("seq")) is int and fields["seq"] > 0 and isinstance(fields.get("prev"), str)
    return fields if sound else None


class Verdict(NamedTuple):
    """The result of a check of a chain."""

    lines: int
    first_seq: int
    last: Link
    problems: list[str]
    """The first problems, one line each; empty: the chain is complete."""


def verify(lines: Iterable[bytes]) -> Verdict:
    """Check lines in order; the first may have any number, since a file may continue another one."""
    problems: list[str] = []
    last, first_seq, count = START, 0, 0
    for count, line in enumerate(lines, 1):
        if len(problems) >= PROBLEMS_MAX:
            break
        fields = read_line(line)
        if fields is None:
            problems.append(f"line {count} is not a line of an audit log")
            continue
        if count == 1:
            first_seq = fields["seq"]
            last = Link(first_seq - 1, BEGINNING if first_seq == 1 else fields["prev"])
        if fields["seq"] != last.seq + 1:
            problems.append(f"line {count} has number {fields['seq']} and should have {last.seq + 1}")
        if fields["prev"] != last.sha256:
            problems.append(
                f"line {count} (number {fields['seq']}) does not follow the line before it: that one was changed, or one is missing"
            )
        last = link_of(fields["seq"], line)
    return Verdict(count, first_seq, last, problems)
