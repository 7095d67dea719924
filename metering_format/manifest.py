"""A manifest describes the files of one rotation and their totals. It is written last; readers ignore files without one."""

from typing import Any, Final, Literal

import msgspec

from metering_format.places import file_set_name

RUN_KEYS: Final = ("run_id", "proxy_id", "proxy_version", "wall_offset_ms", "level", "names", "settings", "quota_config_sha256")
"""Keys that describe the run, in manifests and in the segments of the run."""


class FileEntry(msgspec.Struct, frozen=True):
    """One Parquet file of a file set; `path` is relative to the metering directory."""

    table: str
    path: str
    rows: int
    bytes: int
    sha256: str


class TypeCount(msgspec.Struct, frozen=True):
    """Totals of the decisions of one quota type; `units` are bytes, nanoseconds or connections."""

    decisions: int = 0
    units: int = 0
    throttled: int = 0
    throttle_ms: int = 0


class UsageTotal(msgspec.Struct, frozen=True):
    """Totals of the usage rows."""

    requests: int = 0
    produce_bytes: int = 0
    fetch_bytes: int = 0
    handler_ns: int = 0


class MergedFileSet(msgspec.Struct, frozen=True):
    """A file set that is a part of a merged one: its name, and the SHA-256 of all manifests that had it, the oldest first."""

    file_set: str
    manifests: tuple[str, ...]


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """One file set: the files that were written together. The order of the fields is that of the text.

    Attributes:
        first_ts_ms, last_ts_ms: wall-clock time in ms, as all times of the files.
        wall_offset_ms: wall-clock time minus monotonic time in ms; constant for the run.
        truncated: whether the file set was recovered after a crash.
        final: whether it is the last file set of its run.
        part: number of file sets before it with the same first number, because they held no decision.
        previous: the file set before it in the run, or None.
        replaces: SHA-256 of the manifests that this one replaced when a user was forgotten, the oldest first.
        merged: the file sets that were merged to this one, in order; it has the name of the first. Empty: it was written as it is.
    """

    schema: int
    kind: str
    run_id: str
    proxy_id: str
    proxy_version: str
    wall_offset_ms: int
    level: Literal["sample", "packed", "trace"]
    names: Literal["plain", "keyed", "none"]
    settings: dict[str, Any] = {}
    quota_config_sha256: str | None = None
    previous: str | None = None
    first_seq: int
    part: int = 0
    last_seq: int
    first_ts_ms: int
    last_ts_ms: int
    truncated: bool
    final: bool
    dropped_decisions: int = 0
    dropped_usage_rows: int = 0
    dropped_comparisons: int = 0
    files: tuple[FileEntry, ...]
    counts: dict[str, TypeCount] = {}
    usage: UsageTotal = UsageTotal()
    replaces: tuple[str, ...] = ()
    merged: tuple[MergedFileSet, ...] = ()

    @property
    def last_file_set(self) -> str:
        """The name that the next file set of the run has as `previous`."""
        return self.merged[-1].file_set if self.merged else self.file_set

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the file sets that it contains besides the one with its own name."""
        return tuple(one.file_set for one in self.merged[1:])

    @property
    def file_set(self) -> str:
        """The common name of its files."""
        return file_set_name(self.run_id, self.first_seq, self.part)

    @property
    def compares(self) -> bool:
        """Whether the brokers enforce the quotas too, so that their throttle times are compared with Sluice's."""
        return self.settings.get("store") == "forward"

    @property
    def num_samples(self) -> int:
        """Number of samples of the sensors."""
        return int(self.settings.get("num_samples", 11))

    @property
    def window_ms(self) -> int:
        """Length of a sample in ms."""
        return int(self.settings.get("window_ms", 1_000))


def manifest_text(manifest: Manifest) -> bytes:
    """Return the content of a manifest's file. `replaces` and `merged` are present only when they have content."""
    fields: dict[str, Any] = msgspec.to_builtins(manifest)
    for name in ("replaces", "merged"):
        if not fields[name]:
            del fields[name]
    return pretty(fields)


def pretty(fields: dict[str, Any]) -> bytes:
    """Return JSON in the form of manifests and ledgers, with one line for each key."""
    return msgspec.json.format(msgspec.json.encode(fields), indent=1)
