"""The validator with one Spark task per file set."""

import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.metering.trace import Shape, decide, write
from pipeline.errors import BadInputError, IncompleteError
from pipeline.spark import daemon
from pipeline.spark.failures import HEAP, error_of, jvm_exit_error, reported_in_one_line, reporting_jvm_exit, stopped
from pipeline.spark.validation import judging
from pipeline.spark.validation.judging import CHUNKS_MAX, TASKS_PER_CORE, chunks_of, tasks_for
from pipeline.spark.validation.validate import Wanted, local_runs, validate_remote, validate_runs
from pipeline.validation.local import validate
from pipeline.validation.text import lines_of
from tests.pipeline.support.spark_jvm import quick_jvm
from tests.pipeline.validation.test_validation import batches, change_unread, missed, sensors
from tests.support.metering.metering_buckets import Buckets, write_buckets
from tests.support.metering.metering_directory import write_directory
from tests.support.metering.metering_paced import admitted, write_paced
from tests.support.tools import in_ci, missing_to_run


def one_early(rows: list[dict[str, Any]]) -> None:
    """Move a request of a paced group, which waited, to an earlier time."""
    rows[-1]["dt_ms"][-1] -= 1
    rows[-1]["last_event_ms"] -= 1


def test_spark_says_what_the_local_engine_says(spark: Any, tmp_path: Path) -> None:
    """With one Spark task per file set the verdict equals that of the local engine, with divergences and their evidence."""
    write_directory(tmp_path / "windows", batches(), sensors(), mutate=missed)
    requests = admitted([(0, 50_000)] * 240, 100_000.0)
    write_paced(tmp_path / "paced", [requests[:100], requests[100:]], {0: 100_000.0}, one_early)
    for place in (tmp_path / "windows", tmp_path / "paced"):
        on_spark = validate_runs(spark, local_runs(place))
        assert on_spark.violations > 0
        assert on_spark.as_dict(50) == validate(place).as_dict(50)
    assert on_spark.long_runs.groups == 1


def test_python_workers_keep_their_memory(spark: Any) -> None:
    """Python workers configure Arrow to keep its memory before they import it, whatever the session's master is."""
    reported = spark.sparkContext.parallelize([0], 1).map(lambda _: os.environ.get("MIMALLOC_PURGE_DELAY")).collect()
    assert reported == ["-1"]


def test_a_worker_whose_reader_is_gone_ends_silently(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker whose socket Spark has closed ends without a traceback, as a worker of the local daemon does."""

    def gone(_sock: object, _authenticated: bool) -> int:
        raise BrokenPipeError

    parents = spark.sparkContext.parallelize([0], 1).map(lambda _: Path(f"/proc/{os.getppid()}/cmdline").read_bytes()).collect()
    assert b"pipeline.spark.daemon" in parents[0].split(b"\0")
    monkeypatch.setenv(daemon.RAISES, "")
    monkeypatch.setattr(daemon, "_work", gone)
    assert daemon.worker(None, True) == 1
    monkeypatch.setattr(daemon, "_work", lambda _sock, authenticated: int(not authenticated))
    assert (daemon.worker(None, True), daemon.worker(None, False)) == (0, 1)


def test_the_daemon_prints_no_traceback_of_a_closed_socket(capsys: pytest.CaptureFixture[str]) -> None:
    """Spark has closed the socket before the worker was there: nothing is printed. Any other exception is."""
    for error in (BrokenPipeError("the task has ended"), ConnectionResetError("the task has ended"), ValueError("a defect")):
        try:
            raise error
        except Exception:  # noqa: BLE001 - as PySpark's daemon catches it
            daemon.Tracebacks.print_exc()
    printed = capsys.readouterr().err
    assert "ValueError: a defect" in printed
    assert "the task has ended" not in printed


@pytest.fixture(scope="module")
def mounted(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return a directory, and its URL on a mount of Hadoop's viewfs, which no Python library can read."""
    directory = tmp_path_factory.mktemp("mounted")
    spark._jsc.hadoopConfiguration().set("fs.viewfs.mounttable.house.link./metering", directory.as_uri())
    return directory, "viewfs://house/metering"


def test_another_file_system_is_read_through_spark(spark: Any, mounted: tuple[Path, str]) -> None:
    """On a file system that only Hadoop can read, the verdict equals that of the local engine, with divergences and hashes."""
    directory, place = mounted
    write_directory(directory / "run", batches(), sensors(), mutate=missed)
    there = validate_remote(spark, f"{place}/run")
    assert there.violations > 0
    assert there.as_dict(50) == validate(directory / "run").as_dict(50)


def test_what_is_not_there_is_named(spark: Any, mounted: tuple[Path, str]) -> None:
    """A missing directory, and a missing file of a manifest, whose folder may also be missing, each give one line."""
    directory, place = mounted
    with pytest.raises(BadInputError, match="no manifests can be read"):
        validate_remote(spark, f"{place}/absent")
    write_directory(directory / "short", batches(file_sets=1), sensors())
    path = next((directory / "short" / "samples").rglob("*.parquet"))
    for remove in (path.unlink, lambda: shutil.rmtree(directory / "short" / "samples")):
        remove()
        with (
            pytest.raises(IncompleteError, match=rf"samples/.*{path.name}: is missing; manifest {path.stem} promises 128 rows"),
            reported_in_one_line(),
        ):
            validate_remote(spark, f"{place}/short")


def test_what_changed_on_another_file_system_is_found_by_the_task(spark: Any, mounted: tuple[Path, str]) -> None:
    """When a verdict is written, each task finds files whose hash differs from their manifest."""
    directory, place = mounted
    write_directory(directory / "changed", batches(file_sets=2), sensors())
    assert validate_remote(spark, f"{place}/changed", Wanted(every_byte=True)).violations == 0
    path = change_unread(directory / "changed")
    assert validate_remote(spark, f"{place}/changed").violations == 0
    with pytest.raises(IncompleteError, match=f"{path.name}: its SHA-256 is not the one in manifest"), reported_in_one_line():
        validate_remote(spark, f"{place}/changed", Wanted(every_byte=True))


def test_what_a_task_cannot_read_is_one_line(spark: Any, tmp_path: Path) -> None:
    """A damaged file that a task finds is named in the same line, and with the same exit code, as by the local engine."""
    write_directory(tmp_path, batches(file_sets=1), sensors())
    path = next((tmp_path / "samples").rglob("*.parquet"))
    path.write_bytes(b"x" * path.stat().st_size)
    with pytest.raises(BadInputError) as here:
        validate(tmp_path)
    with pytest.raises(BadInputError) as there, reported_in_one_line():
        validate_runs(spark, local_runs(tmp_path))
    assert str(there.value) == str(here.value)
    assert str(path) in str(there.value)
    assert "\n" not in str(there.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[PYTHON] An exception:\nTraceback (most recent call last):\n  x = 1\nOSError: x\nMemoryError: no room\n\n",
            "MemoryError: no room",
        ),
        ("An error while calling o1.start.\n: java.io.IOException: no room\n\tat a.b(C.java:1)\n", "java.io.IOException: no room"),
        ("\nJob aborted.\n\tat a.b(C.java:1)\n", "Job aborted."),
        ("", "no word"),
    ],
)
def test_what_spark_cannot_finish_is_one_line(text: str, said: str) -> None:
    """Any other error of a Spark job is named in one line, and the verdict is incomplete."""
    reported = error_of(text)
    assert isinstance(reported, IncompleteError)
    assert str(reported) == f"Spark could not finish the work: {said}"


@pytest.mark.parametrize(
    "said",
    ["java.lang.OutOfMemoryError: Java heap space", "org.apache.spark.memory.SparkOutOfMemoryError: [UNABLE] Unable to acquire 16 bytes"],
)
def test_too_little_memory_is_reported_with_its_remedy(said: str) -> None:
    """When a part of Spark runs out of memory, one line names the setting."""
    reported = error_of(f"Job aborted due to stage failure: Task 1 failed: {said}\n\tat a.b(C.java:1)\n")
    assert isinstance(reported, IncompleteError)
    assert re.fullmatch(rf"Spark ran out of memory \({re.escape(said)}\) with a heap of .*: set --driver-memory higher, .*", str(reported))


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (52, "Spark ran out of memory .*: set --driver-memory higher"),
        (-9, "was killed .signal 9., probably because the machine ran out of memory: set --driver-memory lower"),
        (137, "was killed .signal 9., probably because the machine ran out of memory: set --driver-memory lower"),
        (-6, "ended before its work was done .signal 6.; -v"),
        (1, "ended before its work was done .exit code 1.; -v"),
    ],
)
def test_how_a_jvm_ended_is_reported(code: int, said: str) -> None:
    """An exit code or signal of the JVM gives one line with the remedy."""
    assert re.search(said, str(jvm_exit_error(code)))


def test_a_jvm_that_dies_while_spark_is_stopped_is_the_reason() -> None:
    """When a job fails because its JVM ends, the error is the end of the JVM."""
    protocol = pytest.importorskip("py4j.protocol", reason="PySpark is not installed")
    with subprocess.Popen(["sh", "-c", "read line; exit 52"], stdin=subprocess.PIPE) as jvm:

        class Dying:
            def stop(self) -> None:
                assert jvm.stdin is not None
                jvm.stdin.close()
                raise protocol.Py4JNetworkError("Answer from Java side is empty")

        with pytest.raises(IncompleteError, match="Spark ran out of memory"), stopped(Dying(), jvm):
            raise IncompleteError("Spark could not finish the work: java.lang.NullPointerException")


@pytest.mark.parametrize(
    "said",
    [
        "Job 0 cancelled because SparkContext was shut down",
        'Cannot invoke "DAGScheduler.cleanup(long)" because the return value of "org.apache.spark.SparkContext.dagScheduler()" is null',
    ],
)
def test_a_job_that_fails_while_its_jvm_ends_waits_for_the_reason(said: str) -> None:
    """When a job fails before its JVM has ended, the error is the exit code that the JVM has a moment later."""
    pytest.importorskip("py4j", reason="PySpark is not installed")
    with (
        subprocess.Popen(["sh", "-c", "sleep 0.2; exit 52"]) as jvm,
        pytest.raises(IncompleteError, match="Spark ran out of memory"),
        reporting_jvm_exit(jvm),
    ):
        raise IncompleteError(f"Spark could not finish the work: {said}")


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("os.kill(spark.sparkContext._gateway.proc.pid, 9); spark.range(1).count()", "the JVM of Spark was killed (signal 9)"),
        ("spark.sql('SELECT size(sequence(id, 200000000 + id)) FROM range(1)').collect()", "Spark ran out of memory ("),
    ],
    ids=["killed", "out of memory"],
)
def test_what_a_jvm_died_of_is_one_line(program: str, said: str) -> None:
    """A JVM that is killed, or has too little heap by its option, ends the command with one line instead of a refused connection."""
    missing = missing_to_run()
    if missing and not in_ci():
        pytest.skip(f"Spark cannot run here: missing {', '.join(missing)}")
    whole = (
        "import os, sys\nfrom pipeline.commands.execution.exit_codes import clear_errors\n"
        "from pipeline.session_settings import SessionSettings\nfrom pipeline.spark.session import session\n"
        "SETTINGS = SessionSettings('local[1]', conf=(('spark.a', '1'),), driver_memory='600m')\n"
        "@clear_errors\ndef command():\n    with session(SETTINGS) as spark:\n        assert spark.conf.get('spark.a') == '1'\n"
        f"        {program}\ncommand()\n"
    )
    environment = os.environ | {HEAP: "8g", "JAVA_TOOL_OPTIONS": quick_jvm()}
    done = subprocess.run([sys.executable, "-c", whole], env=environment, capture_output=True, text=True, check=False, timeout=240)
    ours = [line for line in done.stderr.splitlines() if line.startswith("sluice: ") and "starting Spark" not in line]
    assert (done.returncode, done.stdout, len(ours)) == (3, "", 1), done.stderr
    assert ours[0].startswith(f"sluice: {said}")
    assert "Traceback" not in done.stderr
    assert "--driver-memory" in ours[0]


def test_a_task_that_sees_only_what_is_recent_judges_everything(spark: Any, tmp_path: Path) -> None:
    """With file sets much longer than a window, a task that reads only the previous file set judges every decision."""
    shape = Shape(20_000, groups=40, seconds=400, file_set_seconds=100)
    write(tmp_path, shape, decide(shape))
    verdict = validate_runs(spark, local_runs(tmp_path))
    assert (verdict.decisions, verdict.unjudged, verdict.violations, verdict.groups) == (20_000, 0, 0, 40)


def test_a_task_of_many_gets_its_own_work_only(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The verdict is the same when each task gets its work as a row."""
    shape = Shape(2_000, groups=4, seconds=90, file_set_seconds=10)
    write(tmp_path, shape, decide(shape))
    found = local_runs(tmp_path)
    together = validate_runs(spark, found)
    monkeypatch.setattr("pipeline.spark.placement.TOGETHER_MAX", 0)
    assert validate_runs(spark, found).as_dict(10) == together.as_dict(10) == validate(tmp_path).as_dict(10)


def test_small_file_sets_are_judged_together(spark: Any, lake: str, tmp_path: Path) -> None:
    """With many more small file sets than cores a task judges some that follow each other, and the verdict is that of the local engine.

    So it is at a URL.
    """
    shape = Shape(3_000, groups=6, seconds=3_600, file_set_seconds=60)
    write(tmp_path, shape, decide(shape))
    found = local_runs(tmp_path)
    chunks = chunks_of(found.runs, 2)
    assert [place.position for chunk in chunks for place in chunk.places] == list(range(60))
    assert {len(chunk.places) for chunk in chunks} == {15}
    assert [len(chunk.manifests) - len(chunk.places) for chunk in chunks] == [0, 1, 1, 1]
    here = validate(tmp_path).as_dict(10)
    assert validate_runs(spark, found).as_dict(10) == here
    assert validate_remote(spark, lake).as_dict(10) == here


@pytest.mark.parametrize("groups", [1, 3, 1_024])
def test_the_groups_of_a_run_are_judged_in_shares(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: int) -> None:
    """The verdict does not depend on the number of groups that a task judges over the whole run, and neither do the printed lines.

    The driver gets the divergences that are printed, and the number of the others.
    """
    monkeypatch.setattr(judging, "GROUPS_OF_SHARE", groups)
    write_buckets(tmp_path, Buckets([5.0, 0.3, 2.0, 8.0]), [lambda it: it.play(300, random.Random(1))] * 2, every_wait_longer)
    found, here = local_runs(tmp_path), validate(tmp_path)
    assert here.groups_with_divergences == 4
    for number in (0, 1, 3, 50):
        there = validate_runs(spark, found, Wanted(max_violations=number))
        assert there.as_dict(number) == here.as_dict(number)
        assert sum(len(findings.first) for findings in there.findings.values()) == min(number, 4)
        assert list(lines_of(there, number, explain=True)) == list(lines_of(here, number, explain=True))


def every_wait_longer(tables: dict[str, list[dict[str, Any]]]) -> None:
    for row in tables["events"]:
        if row["throttle_ms"]:
            row["throttle_ms"] += 1


@pytest.mark.parametrize("cores", [1, 2, 3, 8, 64])
@pytest.mark.parametrize("file_sets", [0, 1, 2, 5, 9, 12, 36, 288, 1_000])
def test_every_core_gets_as_many_tasks(file_sets: int, cores: int) -> None:
    """With enough chunks of file sets every core gets the same number of tasks."""
    tasks = tasks_for(file_sets, cores)
    if file_sets >= TASKS_PER_CORE * cores:
        assert tasks >= TASKS_PER_CORE * cores
        assert tasks % cores == 0 or tasks == file_sets
        assert -(-file_sets // tasks) <= CHUNKS_MAX
    else:
        assert tasks == max(file_sets, 1)
