"""The images are built from the Dockerfile and run: as their user, with a real client, a health check and metering."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.demo.mock_cluster import MockCluster
from tests.support.platform.images import TARGETS, Images
from tests.support.platform.served import RECORDS, SLUICE_UID, ServedSluice, records_through

PROXY_MB_MAX, METER_MB_MAX = 150.0, 660.0
"""Size of each target above its base."""
MOUNTED = "/etc/sluice"
METERING = "/etc/sluice/metering"
RUN_SECONDS_MAX = 120

pytestmark = [pytest.mark.mock, pytest.mark.timeout(1_800)]


@pytest.fixture
def etc(tmp_path: Path) -> Path:
    """A folder for /etc/sluice that the user of the image may read; it may write into `metering` there."""
    folder = tmp_path / "etc"
    (folder / "metering").mkdir(parents=True)
    for path in (tmp_path, folder):
        path.chmod(0o755)
    (folder / "metering").chmod(0o777)
    return folder


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    """Brokers that start with the test."""
    with MockCluster(2) as brokers:
        yield brokers


def inside(images: Images, container: str, etc: Path, *command: str) -> list[str]:
    """Return the command that runs another one in a container, with a folder as /etc/sluice."""
    return images.command("run", "--isolation", "chroot", "--volume", f"{etc}:{MOUNTED}", container, "--", *command)


def entry(images: Images, target: str) -> list[str]:
    """Return what `docker run` starts without arguments."""
    config = images.config(target)
    return [*config["Entrypoint"], *config["Cmd"]]


def ask(images: Images, container: str, etc: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a container."""
    return subprocess.run(inside(images, container, etc, *command), capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=False)


@pytest.mark.parametrize(("target", "mb_max"), [("proxy", PROXY_MB_MAX), ("meter", METER_MB_MAX)])
def test_the_size_has_a_limit(images: Images, target: str, mb_max: float, capsys: pytest.CaptureFixture[str]) -> None:
    """Above its base `proxy` has at most 150 MB, and `meter`, which has Arrow, DuckDB and deltalake, at most 660 MB. Sizes are printed."""
    base, whole = images.megabytes("base"), images.megabytes(f"sluice-{target}")
    with capsys.disabled():
        print(f"\nimage {target}: {whole - base:.0f} MB above a base of {base:.0f} MB")
    assert 0 < whole - base <= mb_max


@pytest.mark.parametrize(
    ("target", "present"),
    [("proxy", ["aiokafka", "numpy"]), ("meter", ["aiokafka", "deltalake", "duckdb", "numpy", "pyarrow", "pyiceberg"])],
)
def test_each_has_its_packages(images: Images, etc: Path, target: str, present: list[str]) -> None:
    """`proxy` has no pyarrow, neither has Spark or pip, and no file of the machine that built it is inside."""
    names = ["aiokafka", "deltalake", "duckdb", "numpy", "pyarrow", "pyiceberg", "pyspark", "pip"]
    code = (
        f"import importlib.util, os; print(*[n for n in {names} if importlib.util.find_spec(n)]);"
        "print(os.getuid(), sum(map(os.path.getsize, filter(os.path.exists, ['/etc/pip.conf']))))"
    )
    done = ask(images, images.container(target), etc, "/opt/sluice/bin/python", "-c", code)
    assert done.stdout.splitlines() == [" ".join(present), f"{SLUICE_UID} 0"], done.stderr


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
@pytest.mark.parametrize("target", TARGETS)
def test_it_serves_a_client(images: Images, cluster: MockCluster, etc: Path, target: str, tls: bool) -> None:
    """Started as `docker run` does, the image serves a client as user 10001, its health check is right before, while and after it runs,
    with an admin port of HTTP and of HTTPS, and SIGTERM ends it with exit code 0.
    """
    container = images.container(target)
    word, *health = images.config(target)["Healthcheck"]["Test"]
    assert word == "CMD"
    served = ServedSluice(etc, inside(images, container, etc, *entry(images, target)), cluster.bootstrap, tls=tls)
    assert ask(images, container, etc, *health).returncode == 1
    with served:
        assert records_through(served.port) == RECORDS
        assert served.user_ids() == {SLUICE_UID}
        healthy = ask(images, container, etc, *health)
        assert (healthy.returncode, healthy.stdout.split(":")[:2]) == (0, ["healthy", f" http{'s' if tls else ''}"]), healthy.stderr
        assert served.stop() == 0, served.output()
    assert ask(images, container, etc, *health).returncode == 1


def test_the_target_meter_meters_and_validates(images: Images, cluster: MockCluster, etc: Path) -> None:
    """The image `meter` writes metering files, and its own `sluice meter` recomputes each decision and rolls them up, without Java."""
    container = images.container("meter")
    run = inside(images, container, etc, *entry(images, "meter"))
    with ServedSluice(etc, run, cluster.bootstrap, metering=METERING) as served:
        assert records_through(served.port) == RECORDS
        assert served.stop() == 0, served.output()
    done = ask(images, container, etc, "sluice", "meter", "validate", "--in", METERING)
    assert done.returncode == 0, done.stdout + done.stderr
    rolled_up = ask(images, container, etc, "sluice", "meter", "rollup", "--in", METERING, "--out", "/tmp/tables")  # noqa: S108 - of the container
    assert (rolled_up.returncode, "coverage    100 %" in rolled_up.stdout) == (0, True), rolled_up.stdout + rolled_up.stderr


def test_the_target_proxy_names_what_metering_needs(images: Images, etc: Path) -> None:
    """In the image `proxy` metering is refused at the start, with the flag and the packages in the message."""
    container = images.container("proxy")
    flags = ("--listen", "127.0.0.1:9092", "--upstream", "127.0.0.1:9", "--metering", METERING)
    done = ask(images, container, etc, "sluice", "run", *flags)
    assert done.stderr.startswith("sluice: command line: --metering: needs pyarrow, which is not installed"), done.stderr
