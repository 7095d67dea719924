"""Translates failures of Spark into errors of the pipeline: one line, and an exit code."""

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from typing import Any, Final

from pipeline.errors import BadInputError, IncompleteError, PipelineError

_OWN_ERROR: Final = re.compile(r"^pipeline\.errors\.(BadInputError|IncompleteError): (.+)$", re.MULTILINE)
_CLASSES: Final = {"BadInputError": BadInputError, "IncompleteError": IncompleteError}
_NAMED: Final = re.compile(r"^(?:: )?[\w.$]*(?:Error|Exception|Interrupt): .*$", re.MULTILINE)
_IN_PYTHON: Final = "Traceback (most recent call last)"
_ABSENT: Final = re.compile(r"^ModuleNotFoundError: No module named '([\w.]+)'", re.MULTILINE)
_OTHER_PYTHON: Final = re.compile(r"\[PYTHON_VERSION_MISMATCH\] ([^\n]*)")
_MEMORY: Final = re.compile(r"^.*?([\w.$]*OutOfMemoryError(?:: [^\n]*)?)", re.MULTILINE)
HEAP: Final = "SPARK_DRIVER_MEMORY"
"""Spark's environment variable for the heap limit of the JVM that the command starts, such as 8g. `spark-defaults.conf` overrides it."""
_OUT_OF_MEMORY: Final = 52
"""Exit code of a Spark JVM that ran out of memory (`SparkExitCode.OOM`)."""
_SHUT_DOWN: Final = re.compile(r'SparkContext was shut down|SparkContext\.dagScheduler\(\)" is null|on a stopped SparkContext')
"""Messages of a job that fails because its JVM is ending."""
_ENDS_S: Final = 10.0
"""After a broken connection, the longest wait for the JVM to end. A JVM that still runs was not the cause."""


@contextlib.contextmanager
def reported_in_one_line() -> Iterator[None]:
    """Raise failures of Spark jobs in a block as errors of the pipeline. Spark passes on only the text of a task's exception.

    Raises:
        BadInputError, IncompleteError: as raised in the task; IncompleteError also when Spark itself failed.
    """
    try:
        yield
    except spark_errors() as error:
        raise error_of(str(error)) from error


def spark_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of PySpark. The client of Spark Connect has no Py4J."""
    from pyspark.errors import PySparkException

    try:
        from py4j.protocol import Py4JJavaError
    except ImportError:
        return (PySparkException,)
    return PySparkException, Py4JJavaError


def error_of(text: str) -> PipelineError:
    """Return the error for the text of a failed job."""
    found = _OWN_ERROR.search(text)
    if found is not None:
        return _CLASSES[found[1]](found[2])
    absent, other = _ABSENT.search(text), _OTHER_PYTHON.search(text)
    if absent is not None:
        remedy = "`sluice meter archive sluice.tar.gz` packs what they need, and prints the settings that use it"
        return BadInputError(f"the workers of Spark have no Python package {absent[1]}; {remedy}")
    if other is not None:
        return BadInputError(f"the workers of Spark run another Python ({other[1]}); set PYSPARK_PYTHON to one that all machines have")
    memory = _MEMORY.search(text)
    if memory is not None:
        return _out_of_memory(memory[1].strip())
    return IncompleteError(f"Spark could not finish the work: {failure_line(text)}")


def failure_line(text: str) -> str:
    """Return the line of an exception's text that states the failure."""
    message: list[str] = _NAMED.findall(text) or [line for line in text.splitlines() if line.strip()] or ["no word"]
    last = message[-1 if _IN_PYTHON in text else 0]  # Python states the failure last, Java first
    return last.removeprefix(": ").strip()


def _out_of_memory(message: str) -> IncompleteError:
    heap = os.environ.get(HEAP, "what spark-submit gave")
    less = "or do less at once (rollup: --from and --to)"
    return IncompleteError(
        f"Spark ran out of memory ({message}) with a heap of {heap}: set --driver-memory higher, "
        f"on a cluster spark.executor.memory too, {less}"
    )


@contextlib.contextmanager
def reporting_jvm_exit(process: "subprocess.Popen[bytes] | None") -> Iterator[None]:
    """Raise the death of the JVM in place of an exception in a block. Without this, the caller only sees a refused connection.

    Args:
        process: the JVM; None when another program started it.

    Raises:
        IncompleteError: the JVM has ended.
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
        raise jvm_exit_error(code) from error


@contextlib.contextmanager
def stopped(spark: Any, process: "subprocess.Popen[bytes] | None") -> Iterator[None]:
    """Stop Spark after a block. Raise a failure in the block, or the death of the JVM, as an error of the pipeline.

    A JVM that runs out of memory may first fail a job for another reason, and end while Spark stops. Its death is then the reported cause.

    Args:
        spark: the session.
        process: its JVM; None when another program started it.

    Raises:
        BadInputError, IncompleteError: an exception of a task, a failure of Spark, or the death of the JVM.
    """
    from py4j.protocol import Py4JError

    with reporting_jvm_exit(process):
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


def jvm_exit_error(code: int) -> IncompleteError:
    """Return the error for the exit code of a JVM; a negative code is a signal."""
    if code == _OUT_OF_MEMORY:
        return _out_of_memory("the JVM ended")
    if code in (-signal.SIGKILL, 128 + signal.SIGKILL):
        heap = os.environ.get(HEAP, "")
        return IncompleteError(
            f"the JVM of Spark was killed (signal 9), probably because the machine ran out of memory: set --driver-memory lower"
            f" than {heap}, or run it where there is more memory"
        )
    message = f"signal {-code}" if code < 0 else f"exit code {code}"
    return IncompleteError(f"the JVM of Spark ended before its work was done ({message}); -v shows its log")
