"""Reads the proxy's ledger of file sets that retention removed."""

import contextlib
import json
from collections.abc import Iterable
from typing import Final

from metering_format.places import LEDGER_KIND, REMOVED, ledger_name
from pipeline.manifest import RunKey
from pipeline.storage.paths import AnyPath, listed_below

LEDGERS: Final = ledger_name("*")


def removed_runs(directory: AnyPath) -> dict[RunKey, int]:
    """Return the sequence number of the last removed decision by (proxy_id, run_id); unreadable entries are ignored."""
    texts = []
    found: list[AnyPath] = sorted(listed_below(directory, REMOVED).glob(LEDGERS), key=str)
    for path in found:
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
