"""FAIR: a member of a paced group got less than its share of what passed, in ten seconds in which it wanted more.

Spans of ten seconds begin at whole tens of seconds. A member wanted more in a span if a request of it waited for 95 % of that time. The
share of such a member is that of max-min fairness: members that wanted less keep what passed, and the others get equal amounts of the rest.
What passed before its time to keep group memberships is not shared: it is left out, whichever members it is of.
A member may get `TOLERANCE` less, and one request of the largest size, since a request passes as a whole. A span that is not in one file
set as a whole is not judged. Neither is a file set in which a client was not enforced, or one of a process that shares usage: members get
their shares over all processes.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from metering_format.event_kinds import EXCUSED_MS
from metering_format.places import SHARED
from pipeline.file_set import FileSet
from pipeline.replay.findings import Finding, Findings, Kind
from pipeline.validation.rules.application import SettingsIntervals

SPAN_MS: Final = 10_000
SECOND_MS: Final = 1_000
WANTED_SHARE: Final = 0.95
TOLERANCE: Final = 0.15
TABLE: Final = "shares"


class Passed(NamedTuple):
    """One member in one span.

    Attributes:
        wanted_ms: how long a request of it waited, at most `SPAN_MS`.
        client_ref: a client that is the member, or None.
    """

    member_ref: int
    client_ref: int | None
    passed_bytes: int
    largest_bytes: int
    wanted_ms: int

    @property
    def wants_more(self) -> bool:
        """Whether it wanted more throughout."""
        return self.wanted_ms >= WANTED_SHARE * SPAN_MS


def check_shares(file_set: FileSet, samples: pa.Table, findings: Findings) -> None:
    """Compare what the members of each paced group passed with their shares; `samples` are the rows of the file set."""
    manifest = file_set.manifest
    if SHARED in manifest.settings or not any(entry.table == TABLE for entry in manifest.files):
        return
    if not SettingsIntervals(file_set).enforce_throughout:
        return
    rows = file_set.read(TABLE).to_pylist()
    excused = _excused(samples)
    clients: dict[int, str] | None = None
    for (group_ref, span_ms), members in sorted(_spans(rows).items()):
        if span_ms < manifest.first_ts_ms or span_ms + SPAN_MS > manifest.last_ts_ms:
            continue
        wrong = list(unfair(members, excused[group_ref, span_ms]))
        for member, least in wrong:
            clients = _clients(file_set) if clients is None else clients
            what = f"bytes of {_named(member, clients)} in 10 s, in which it waited for more"
            figures = (f"at least {least}", str(member.passed_bytes), what)
            evidence = tuple(f"{_named(one, clients)}: {one.passed_bytes} bytes, {one.wanted_ms} ms with a wait" for one in members)
            findings.add(Finding(Kind.FAIR, group_ref, manifest.first_seq, span_ms, *figures, evidence))


def unfair(members: Sequence[Passed], excused: int = 0) -> Iterator[tuple[Passed, int]]:
    """Yield each member that got too little, with the least amount that it should have passed; `excused` is left out of what all passed."""
    if len(members) < 2:
        return
    share = max_min_share(members, excused)
    least = int(share * (1 - TOLERANCE)) - max(member.largest_bytes for member in members)
    for member in members:
        if member.wants_more and member.passed_bytes < least:
            yield member, least


def max_min_share(members: Sequence[Passed], excused: int = 0) -> float:
    """Return the amount of each member that wanted more, when all share what passed; members that wanted less keep less than it."""
    rest = sum(member.passed_bytes for member in members) - excused
    sharing = len(members)
    for amount in sorted(member.passed_bytes for member in members if not member.wants_more):
        if amount * sharing >= rest:
            break
        rest -= amount
        sharing -= 1
    return rest / sharing if sharing else 0.0


def _spans(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[int, int], list[Passed]]:
    """Return the members of each group and span. A wait of more than a second also counts in the seconds before its row."""
    found: dict[tuple[int, int], dict[int, Passed]] = {}
    for row in rows:
        for span_ms, wanted_ms in _parts(row["second_ms"], row["wanted_ms"]):
            own = found.setdefault((row["group_ref"], span_ms), {})
            before = own.get(row["member_ref"], Passed(row["member_ref"], None, 0, 0, 0))
            is_of_row = span_ms == row["second_ms"] // SPAN_MS * SPAN_MS
            own[row["member_ref"]] = Passed(
                row["member_ref"],
                before.client_ref if row["client_ref"] is None else row["client_ref"],
                before.passed_bytes + row["passed_bytes"] * is_of_row,
                max(before.largest_bytes, row["largest_bytes"] * is_of_row),
                min(before.wanted_ms + wanted_ms, SPAN_MS),
            )
    return {place: list(members.values()) for place, members in found.items()}


def _excused(samples: pa.Table) -> Counter[tuple[int, int]]:
    """Return the sum of what passed before its time to keep memberships, by group and span, at least."""
    found: Counter[tuple[int, int]] = Counter()
    applied_ms = samples.column("applied_ms").combine_chunks()
    its = pc.list_parent_indices(applied_ms).filter(pc.equal(pc.list_flatten(applied_ms), pa.scalar(EXCUSED_MS, pa.int32())))
    if not len(its):
        return found
    for row in samples.take(its.unique()).to_pylist():
        waits = zip(row["thr_pos"], row["applied_ms"], strict=True)
        amount = sum(row["val"][at] for at, applied in waits if applied == EXCUSED_MS)
        for span_ms in {row[time] // SPAN_MS * SPAN_MS for time in ("sample_start_ms", "last_event_ms")}:
            found[row["group_ref"], span_ms] += amount
    return found


def _parts(second_ms: int, wanted_ms: int) -> Iterator[tuple[int, int]]:
    """Yield each span with its part of a wait that ended with a second; the span of that second comes first."""
    end_ms = second_ms + SECOND_MS
    begin_ms = end_ms - wanted_ms
    while True:
        span_ms = (end_ms - 1) // SPAN_MS * SPAN_MS
        yield span_ms, end_ms - max(begin_ms, span_ms)
        if begin_ms >= span_ms:
            return
        end_ms = span_ms


def _clients(file_set: FileSet) -> dict[int, str]:
    rows = file_set.read("dim_client", columns=["client_ref", "principal_type", "principal", "client_id"]).to_pylist()
    return {row["client_ref"]: f"{row['principal_type']}:{row['principal']}, client-id {row['client_id']}" for row in rows}


def _named(member: Passed, clients: Mapping[int, str]) -> str:
    client = None if member.client_ref is None else clients.get(member.client_ref)
    return f"member {member.member_ref}" + ("" if client is None else f" ({client})")
