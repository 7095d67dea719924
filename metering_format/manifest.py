"""A manifest: what the files of one rotation are, and what they add up to. It is written last; readers know no file without one."""

from typing import Any, Final, Literal

import msgspec

from metering_format.places import file_set_name

RUN_KEYS: Final = ("run_id", "proxy_id", "proxy_version", "wall_offset_ms", "level", "names", "settings", "quota_config_sha256")
"""What a manifest says of its run; the segments of that run say the same under the same keys."""


class FileEntry(msgspec.Struct, frozen=True):
    """One Parquet file of a file set; `path` is relative to the metering directory."""

    table: str
    path: str
    rows: int
    bytes: int
    sha256: str


class TypeCount(msgspec.Struct, frozen=True):
    """What the decisions of one quota type add up to; `units` are bytes, nanoseconds or connections."""

    decisions: int = 0
    units: int = 0
    throttled: int = 0
    throttle_ms: int = 0


class UsageTotal(msgspec.Struct, frozen=True):
    """What the usage rows add up to."""

    requests: int = 0
    produce_bytes: int = 0
    fetch_bytes: int = 0
    handler_ns: int = 0


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """One file set: the files that were written together. Fields stand in the order of the text.

    Attributes:
        first_ts_ms, last_ts_ms: in wall time, as all times of the files.
        wall_offset_ms: was added to monotonic milliseconds for that, one number for the whole run.
        truncated: put together from what a crash left behind.
        final: the last file set of its run.
        part: how many file sets before it have the same first number, since they held no decision.
        previous: the file set before it in the run, or None.
        replaces: SHA-256 of the manifests that stood here before a user was forgotten, the oldest first.
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

    @property
    def file_set(self) -> str:
        """The name that its files share."""
        return file_set_name(self.run_id, self.first_seq, self.part)

    @property
    def compares(self) -> bool:
        """Whether brokers kept the quotas, so that their throttles stand beside Sluice's."""
        return self.settings.get("store") == "forward"

    @property
    def num_samples(self) -> int:
        """Samples of the sensors, as the proxy was set."""
        return int(self.settings.get("num_samples", 11))

    @property
    def window_ms(self) -> int:
        """Length of a sample, as the proxy was set."""
        return int(self.settings.get("window_ms", 1_000))


def manifest_text(manifest: Manifest) -> bytes:
    """Return what stands in the file of a manifest. `replaces` is there only after a user was forgotten."""
    fields: dict[str, Any] = msgspec.to_builtins(manifest)
    if not manifest.replaces:
        del fields["replaces"]
    return pretty(fields)


def pretty(fields: dict[str, Any]) -> bytes:
    """Return JSON as manifests and ledgers have it, with a line for each key."""
    return msgspec.json.format(msgspec.json.encode(fields), indent=1)
