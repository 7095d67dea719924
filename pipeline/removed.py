"""What retention removed: the proxy's ledger of file sets that are gone on purpose."""

import json
from pathlib import Path
from typing import Final

REMOVED: Final = "removed"
KIND: Final = "sluice-metering-removed"


def removed_runs(directory: Path) -> dict[tuple[str, str], int]:
    """Return by (proxy_id, run_id) the number of the last decision that was removed; what cannot be read removes nothing."""
    found: dict[tuple[str, str], int] = {}
    for path in sorted((directory / REMOVED).glob("proxy=*.json")):
        try:
            ledger = json.loads(path.read_bytes())
            if ledger["kind"] == KIND:
                found.update({(ledger["proxy_id"], run["run_id"]): int(run["last_seq"]) for run in ledger["runs"]})
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return found
