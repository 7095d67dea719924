"""A proxy process loads only the libraries of the features it uses."""

import signal
import subprocess
import sys
from collections.abc import Sequence

import pytest

from tests.support.places import ROOT
from tests.support.ports import free_bootstrap_port, free_port

RUN_AND_TELL = "import atexit, sys; atexit.register(lambda: print(*sys.modules)); from sluice_cli.__main__ import main; main()"
OF_PARTS = ("aiokafka", "confluent_kafka", "kafka", "kazoo", "numpy", "pandas", "prometheus_client", "pyarrow", "pyspark", "tomlkit")
WITH_ADMIN_PORT = (*OF_PARTS, "cProfile", "cryptography", "proxy.observe.workers")
OF_ALL_PARTS = (*OF_PARTS, "aiohttp", "cProfile", "cryptography")


def loaded(*flags: str) -> set[str]:
    """Run a proxy with these flags until it listens, and return the packages and modules that it has loaded."""
    port = free_bootstrap_port()
    where = ("--listen", f"127.0.0.1:{port}", "--upstream", f"127.0.0.1:{free_port()}")
    command = [sys.executable, "-c", RUN_AND_TELL, "run", *where, *flags]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        said = next((line for line in child.stderr if '"listening"' in line), None)
        child.send_signal(signal.SIGTERM)
        out, err = child.communicate()
        assert said is not None, err
    return {part for name in out.split() for part in (name.partition(".")[0], name)}


@pytest.mark.parametrize(
    ("flags", "absent"),
    [
        pytest.param((), OF_ALL_PARTS, id="plain"),
        pytest.param(
            ("--admin", f"127.0.0.1:{free_port()}"),
            WITH_ADMIN_PORT,
            id="with-an-admin-port",
        ),
    ],
)
def test_a_part_that_is_off_loads_no_library(flags: Sequence[str], absent: Sequence[str]) -> None:
    """The libraries of metering, stores, TLS, the admin port and the profiler are not loaded while those are not used."""
    assert sorted(loaded(*flags) & set(absent)) == []
