"""Translates failures of Spark into errors of the pipeline: one line, and an exit code."""

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from typing import Any, Final

from pipeline.errors import BadInputError, IncompleteError, PipelineError

_OURS: Final = re.compile(r"^pipeline\.errors\.(BadInputError|IncompleteError): (.+)$", re.MULTILINE)
_CLASSES: Final = {"BadInputError": BadInputError, "IncompleteError": IncompleteError}
_NAMED: Final = re.compile(r"^(?:: )?[\w.$]*(?:Error|Exception|Interrupt): .*$", re.MULTILINE)
_IN_PYTHON: Final = "Traceback (most recent call last)"
_MEMORY: Final = re.compile(r"^.*?([\w.$]*OutOfMemoryError(?:: [^\n]*)?)", re.MULTILINE)
HEAP: Final = "SPARK_DRIVER_MEMORY"
"""How large the heap of the JVM that the command starts may grow, such as 8g: Spark's own variable; `spark-defaults.conf` overrides it."""
_OUT_OF_MEMORY: Final = 52
"""How a JVM of Spark's ends that has no memory left (`SparkExitCode.OOM`)."""
_SHUT_DOWN: Final = re.compile(r'SparkContext was shut down|SparkContext\.dagScheduler\(\)" is null|on a stopped SparkContext')
"""What a job fails with while its JVM is ending."""
_ENDS_S: Final = 10.0
"""A JVM that closes its connections is gone within so many seconds, or was asked for something else."""


@contextlib.contextmanager
def reported_in_one_line() -> Iterator[None]:
    """Raise what failed in a block's Spark jobs as an error of ours: of what a task raised, Spark hands on only the text.

    Raises:
        BadInputError, IncompleteError: as in the task; the latter, too, where Spark itself gave up.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise error_of(str(error)) from error


def error_of(text: str) -> PipelineError:
    """Return the error that the text of a failed job stands for."""
    found = _OURS.search(text)
    if found is not None:
        return _CLASSES[found[1]](found[2])
    memory = _MEMORY.search(text)
    if memory is not None:
        return _ran_out(memory[1].strip())
    return IncompleteError(f"Spark could not finish the work: {gist_of(text)}")


def gist_of(text: str) -> str:
    """Return the line of an exception's text that says what failed."""
    said: list[str] = _NAMED.findall(text) or [line for line in text.splitlines() if line.strip()] or ["no word"]
    last = said[-1 if _IN_PYTHON in text else 0]  # Python names what failed at the end, Java at the beginning
    return last.removeprefix(": ").strip()


def is_of_spark_itself(text: str) -> bool:
    """Whether a job failed for want of memory, or since its JVM was ending, and not over what it read."""
    return _MEMORY.search(text) is not None or _SHUT_DOWN.search(text) is not None


def _ran_out(said: str) -> IncompleteError:
    heap = os.environ.get(HEAP, "what spark-submit gave")
    less = "or do less at once (rollup: --from and --to)"
    return IncompleteError(
        f"Spark ran out of memory ({said}) with a heap of {heap}: set {HEAP} higher, on a cluster spark.executor.memory too, {less}"
    )


@contextlib.contextmanager
def death_reported(process: "subprocess.Popen[bytes] | None") -> Iterator[None]:
    """Raise what a JVM died of in place of whatever that made fail in a block: all that is seen of it is a connection that is refused.

    Args:
        process: the JVM; None: another program started it.

    Raises:
        IncompleteError: the JVM is gone.
    """
    from py4j.protocol import Py4JError, Py4JJavaError

    try:
        yield
    except Exception as error:
        is_broken = isinstance(error, (OSError, Py4JError)) and not isinstance(error, Py4JJavaError)
        is_broken = is_broken or _SHUT_DOWN.search(str(error)) is not None
        code = _ended(process, _ENDS_S if is_broken else 0.0) if process is not None else None
        if code is None:
            raise
        raise death_of(code) from error


@contextlib.contextmanager
def stopped(spark: Any, process: "subprocess.Popen[bytes] | None") -> Iterator[None]:
    """Stop Spark after a block, and raise what failed in it, or what the JVM died of, as an error of ours.

    A JVM that has no memory left may first fail a job for another reason, and be gone when Spark is stopped: then its death is the reason.

    Args:
        spark: the session.
        process: its JVM; None: another program started it.

    Raises:
        BadInputError, IncompleteError: what a task raised, Spark giving up, or the death of the JVM.
    """
    from py4j.protocol import Py4JError

    with death_reported(process):
        try:
            with reported_in_one_line():
                yield
        finally:
            is_gone = process is not None and process.poll() is not None
            with contextlib.suppress(OSError, Py4JError) if is_gone else contextlib.nullcontext():
                spark.stop()


def _ended(process: "subprocess.Popen[bytes]", within_s: float) -> int | None:
    try:
        return process.wait(within_s)
    except subprocess.TimeoutExpired:
        return None


def death_of(code: int) -> IncompleteError:
    """Return the error that the exit code of a JVM stands for; below 0: a signal."""
    if code == _OUT_OF_MEMORY:
        return _ran_out("the JVM ended")
    if code in (-signal.SIGKILL, 128 + signal.SIGKILL):
        heap = os.environ.get(HEAP, "")
        return IncompleteError(
            f"the JVM of Spark was killed (signal 9), as a machine does that has no memory left: set {HEAP} lower than {heap}, or run it"
            " where there is more memory"
        )
    said = f"signal {-code}" if code < 0 else f"exit code {code}"
    return IncompleteError(f"the JVM of Spark ended before its work was done ({said}); -v shows what it said")
