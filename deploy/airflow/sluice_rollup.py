"""Roll-ups of Sluice's metering files in Airflow 3: the tables every hour, and the close of each day.

Copy this file to the folder of DAGs. The command `sluice` is on the PATH of the worker, with the extra `rollup`. Variables of the
environment: SLUICE_METERING, the metering directory; SLUICE_TABLES, the directory of the tables. Documentation:
docs/how-to/scheduled-rollups.md.
"""

import datetime
import os
import subprocess

from airflow.sdk import dag, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException

METERING = os.environ.get("SLUICE_METERING", "/var/lib/sluice/metering")
TABLES = os.environ.get("SLUICE_TABLES", "/var/lib/sluice/tables")
BAD_INPUT = 2
"""Exit code of wrong options or files, which no retry mends."""
OPEN_DAYS = 2
"""A day is closed when it is this many days old: its rows never change again, and later data become adjustments."""
COMMON = {
    "start_date": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
    "catchup": False,  # a run builds every hour that has new files
    "max_active_runs": 1,
    "default_args": {"retries": 3, "retry_delay": datetime.timedelta(minutes=10), "execution_timeout": datetime.timedelta(minutes=50)},
    "tags": ["sluice"],
}


def roll_up(*options: str) -> None:
    """Update the tables; a task that fails is tried again, which is safe: nothing is counted twice.

    Raises:
        AirflowFailException: the input is bad; the task is not tried again.
        RuntimeError: data are missing, or another roll-up runs.
    """
    command = ["sluice", "meter", "rollup", "--in", METERING, "--out", TABLES, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - no text of others is in it
    print(done.stdout, done.stderr, sep="\n")  # noqa: T201 - the log of the task
    if done.returncode == BAD_INPUT:
        raise AirflowFailException(done.stderr.strip().splitlines()[-1])
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode}: {done.stderr.strip() or 'a day is not covered by its files'}")


@dag(schedule="5 * * * *", **COMMON)
def sluice_rollup() -> None:
    """Five minutes after each hour: its last file set is closed by then."""

    @task
    def hours() -> None:
        roll_up()

    hours()


@dag(schedule="30 3 * * *", **COMMON)
def sluice_rollup_close() -> None:
    """Every night."""

    @task
    def close() -> None:
        now = get_current_context().get("logical_date") or datetime.datetime.now(datetime.UTC)
        roll_up("--close-through", f"{now - datetime.timedelta(days=OPEN_DAYS):%Y-%m-%d}")

    close()


HOURLY = sluice_rollup()
NIGHTLY = sluice_rollup_close()
