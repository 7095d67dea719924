"""Selects the clients with series of their own: the busiest. The others are one series, `__other__`, which never falls.

Clients choose their ids, so Sluice has to limit the number of series.
"""

import hashlib
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Final, Generic, TypeVar

from proxy.base.printable import printable
from proxy.telemetry.client_usage import OTHER

LABEL_CHARS_MAX: Final = 128
_DIGEST_CHARS: Final = 16

Owner = TypeVar("Owner", bound=Hashable)
Labels = tuple[str, ...]
"""The labels that distinguish the series of one owner: a direction, an API, a quota type."""


def label(text: str) -> str:
    """Return `text` as a label: printable, at most 128 characters, and different for different texts."""
    safe = printable(text, LABEL_CHARS_MAX)
    if safe == text and text != OTHER:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARS]
    return f"{safe[: LABEL_CHARS_MAX - _DIGEST_CHARS - 1]}~{digest}"


class Fold(Generic[Owner]):
    """Sums the counters of clients without series of their own.

    A client that gets series of its own takes its history along, and one that loses them adds only what is new. Without these
    corrections `__other__` would decrease, which Prometheus reads as a restart.
    """

    def __init__(self, other_labels: Callable[[Labels], Labels]) -> None:
        self._other_labels = other_labels
        self._corrections: dict[Labels, int] = {}
        self._shown: dict[Owner, dict[Labels, int]] = {}
        self._folded: set[Owner] = set()
        self.folded_total = 0
        """How often a client lost, or did not get, its own series."""

    def fold(
        self, shown: Mapping[Owner, dict[Labels, int]], folded: Iterable[Owner], folded_sums: Mapping[Labels, int]
    ) -> dict[Labels, int]:
        """Return the series of `__other__`, from the series of each owner in `shown` and the sums over all in `folded`."""
        for owner, values in shown.items():
            if owner in self._folded:
                self._correct(values, +1)
        now_folded = set(folded)
        for owner in now_folded & self._shown.keys():
            self._correct(self._shown[owner], -1)
        self.folded_total += len(now_folded - self._folded)
        self._folded, self._shown = now_folded, dict(shown)
        keys = folded_sums.keys() | self._corrections.keys()
        series = {key: folded_sums.get(key, 0) + self._corrections.get(key, 0) for key in keys}
        return {key: value for key, value in sorted(series.items()) if value}

    def _correct(self, values: Mapping[Labels, int], sign: int) -> None:
        for own, value in values.items():
            key = self._other_labels(own)
            self._corrections[key] = self._corrections.get(key, 0) + sign * value
