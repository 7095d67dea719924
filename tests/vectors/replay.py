"""Runs the cases of a vector file and counts passed and failed ones."""

import json
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.vectors.administration import run_admin_kraft, run_admin_zookeeper
from tests.vectors.compare import Runner
from tests.vectors.connections import run_connection_quotas
from tests.vectors.managers import run_callback_calls, run_client_quota_manager, run_request_flow
from tests.vectors.measurements import run_avg, run_rate, run_throttle_time, run_token_bucket
from tests.vectors.mute_states import run_mute_state
from tests.vectors.names import run_sanitizer

RUNNERS: Final[dict[str, Runner]] = {
    "admin-kraft/1": run_admin_kraft,
    "admin-zk/1": run_admin_zookeeper,
    "avg/1": run_avg,
    "callback-calls/1": run_callback_calls,
    "client-quota-manager/1": run_client_quota_manager,
    "connection-quotas/1": run_connection_quotas,
    "mute-state/1": run_mute_state,
    "rate/1": run_rate,
    "request-flow/1": run_request_flow,
    "sanitizer/1": run_sanitizer,
    "throttle-time/1": run_throttle_time,
    "token-bucket/1": run_token_bucket,
}


class FileResult(NamedTuple):
    """The result of a file of a known format."""

    passed: int
    failed: int
    first_failure: str | None


def load(path: Path) -> Any:
    """Return the parsed file; None when it is not JSON."""
    try:
        return json.loads(path.read_text())
    except (ValueError, OSError):
        return None


def format_of(content: Any) -> str:
    """Return the format that a file names."""
    found = content.get("format") if isinstance(content, dict) else None
    return found if isinstance(found, str) else "no format"


def replay(content: dict[str, Any], *, lazy: bool) -> FileResult:
    """Run every case of a file of a known format on new objects."""
    runner = RUNNERS[format_of(content)]
    columns = content.get("columns", [])
    failures = {case["name"]: found for case in content["cases"] if (found := _first(runner, case, columns, lazy)) is not None}
    first = next((f"{name}: {what}" for name, what in failures.items()), None)
    return FileResult(len(content["cases"]) - len(failures), len(failures), first)


def _first(runner: Runner, case: dict[str, Any], columns: list[str], lazy: bool) -> str | None:
    try:
        return next(iter(runner(case, columns, lazy)), None)
    except Exception as error:  # noqa: BLE001 - a case that cannot be run has failed; the others go on
        return f"{type(error).__name__}: {error}"
