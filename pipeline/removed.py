"""Reads the proxy's ledger of file sets that retention removed."""

import contextlib
import json
from collections.abc import Collection, Iterable
from typing import Final

from metering_format.places import LEDGER_KIND, REMOVED, ledger_name
from pipeline.manifest import RunKey
from pipeline.storage.paths import AnyPath, listed_below

LEDGERS: Final = ledger_name("*")


def removed_runs(directory: AnyPath, proxy_ids: Collection[str] | None = None) -> dict[RunKey, int]:
    """Return the sequence number of the last removed decision by (proxy_id, run_id); unreadable entries are ignored.

    Args:
        directory: the metering directory.
        proxy_ids: the proxies whose ledgers are read; None: all.
    """
    texts = []
    found: list[AnyPath] = sorted(listed_below(directory, REMOVED).glob(LEDGERS), key=str)
    names = None if proxy_ids is None else {ledger_name(proxy_id) for proxy_id in proxy_ids}
    for path in found:
        if names is not None and path.name not in names:
            continue
        with contextlib.suppress(OSError):
            texts.append(path.read_bytes())
    return removed_of(texts)


def removed_of(texts: Iterable[bytes]) -> dict[RunKey, int]:
    """Return the same from the contents of the ledgers."""
    found: dict[RunKey, int] = {}
    for text in texts:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            ledger = json.loads(text)
            if ledger["kind"] == LEDGER_KIND:
                found.update({(ledger["proxy_id"], run["run_id"]): int(run["last_seq"]) for run in ledger["runs"]})
    return found
