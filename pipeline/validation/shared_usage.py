"""What was found of workers that share usage, in figures."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class SharedUsage:
    """What was found of workers that share usage.

    Attributes:
        workers: how many wrote the runs; `groups` that they have, by name, over all of them.
        remote_records, remote_units: usage that was recorded of another worker; `skipped_units`: was too old for that.
        compared: decisions of which it was looked at how much they knew of each other worker; `lag_ms_p99`, `lag_ms_max`: how long before
            them the oldest of what they did not know was recorded.
        highest_ratio: the highest rate of a group over its bound, in 10 s, over all workers.
        missing: workers that no file set is of.
    """

    workers: int = 0
    groups: int = 0
    remote_records: int = 0
    remote_units: int = 0
    skipped_units: int = 0
    compared: int = 0
    lag_ms_p99: int = 0
    lag_ms_max: int = 0
    highest_ratio: float | None = None
    missing: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON; what is missing is told of elsewhere."""
        return {name: getattr(self, name) for name in self.__slots__ if name != "missing"}
