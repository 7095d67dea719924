"""Sluice works without the packages of its extras; what needs one names it, with the setting and the command that installs it."""

import signal
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from proxy.base.packages import DEMO, FLEET, METERING, REQUIREMENTS, TOPIC, missing, need, remedy
from tests.support.config_folder import complaints
from tests.support.places import ROOT
from tests.support.ports import free_bootstrap_port, free_port
from tests.support.problem_lines import without_place

PACKAGES = (*REQUIREMENTS, "pandas", "pyspark", "py4j")
WITHOUT = f"import sys; sys.modules.update(dict.fromkeys({PACKAGES!r})); from sluice_cli.__main__ import main; main()"
"""Runs `sluice` where no package of an extra can be imported."""
HEAD = '[upstream]\nbootstrap = "b:1"\n[[listener]]\naddress = "127.0.0.1:9092"\nfirst_broker_port = 9200\n'
ARROW = 'needs numpy and pyarrow, which are not installed; run `pip install "numpy>=2,<3" "pyarrow>=18"` where Sluice is installed'
KAFKA = 'needs aiokafka, which is not installed; run `pip install "aiokafka>=0.12,<1"` where Sluice is installed'
SECONDS_MAX = 60


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """No package of an extra can be found."""
    for module in PACKAGES:
        monkeypatch.setitem(sys.modules, module, None)


def sluice(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command without the packages."""
    command = [sys.executable, "-c", WITHOUT, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)


@pytest.mark.parametrize("more", [(), ("--admin", "--workers")], ids=["one-process", "workers-and-an-admin-port"])
def test_the_proxy_runs_without_them(more: Sequence[str]) -> None:
    """A proxy that uses none of them starts, listens, and ends by SIGTERM."""
    values = {"--admin": f"127.0.0.1:{free_port()}", "--workers": "2"}
    flags = [part for flag in more for part in (flag, values[flag])]
    where = ["--listen", f"127.0.0.1:{free_bootstrap_port()}", "--upstream", f"127.0.0.1:{free_port()}"]
    command = [sys.executable, "-c", WITHOUT, "run", *where, *flags]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        said = next((line for line in child.stderr if '"listening"' in line), None)
        child.send_signal(signal.SIGTERM)
        _, rest = child.communicate(timeout=SECONDS_MAX)
    assert said is not None, rest
    assert child.returncode == 0, rest


def test_a_flag_is_named(tmp_path: Path) -> None:
    """Where `--metering DIR` asks for metering, the message names the flag, the packages and the command."""
    done = sluice("run", "--listen", "127.0.0.1:9092", "--upstream", "b:1", "--metering", str(tmp_path))
    assert (done.returncode, done.stderr) == (2, f"sluice: command line: --metering: {ARROW}\n")


def test_a_flag_is_named_beside_a_file(tmp_path: Path) -> None:
    """The flag is named, too, if the rest of the configuration comes from a file."""
    (tmp_path / "sluice.toml").write_text(HEAD)
    done = sluice("run", "--config", str(tmp_path / "sluice.toml"), "--metering", str(tmp_path))
    assert (done.returncode, done.stderr) == (2, f"sluice: command line: --metering: {ARROW}\n")


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(
    ("text", "lines"),
    [
        pytest.param('[metering]\ndir = "m"\n', [f"metering: {ARROW}"], id="metering"),
        pytest.param('[metering]\ndir = "m"\nlevel = "off"\n', [], id="metering-that-is-off"),
        pytest.param('[metering]\ndir = "m"\ntopic = "t"\n', [f"metering: {ARROW}", f"metering.topic: {KAFKA}"], id="metering-topic"),
        pytest.param('[quotas]\nstore = "topic"\ntopic = "t"\n', [f"quotas.topic: {KAFKA}"], id="quota-topic"),
    ],
)
def test_a_key_is_named(tmp_path: Path, text: str, lines: list[str]) -> None:
    """Each setting of a file that needs a package is reported by its key, all of them at once; what is off needs none."""
    assert complaints_or_none(tmp_path, HEAD + text) == lines


def complaints_or_none(folder: Path, text: str) -> list[str]:
    """Return the messages, which may be none."""
    (folder / "sluice.toml").write_text(text)
    done = sluice("check-config", str(folder / "sluice.toml"))
    if done.returncode == 0:
        return []
    lines = [line.removeprefix("sluice: ") for line in done.stderr.splitlines()]
    assert complaints(folder, text) == without_place(lines, folder / "sluice.toml")
    return complaints(folder, text)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        pytest.param(("meter", "validate", "--in", "m"), f"sluice: sluice meter {ARROW}\n", id="meter"),
        pytest.param(
            ("demo",),
            "sluice: the demo needs aiokafka, confluent-kafka, kafka-python, numpy and pyarrow, which are not installed; run `pip install "
            '"aiokafka>=0.12,<1" "confluent-kafka>=2.16,<3" "kafka-python>=3,<4" "numpy>=2,<3" "pyarrow>=18"` where Sluice is installed\n',
            id="demo",
        ),
    ],
)
def test_a_command_names_what_it_needs(arguments: Sequence[str], line: str) -> None:
    """A command that needs packages names them, with exit code 2 and no traceback."""
    done = sluice(*arguments)
    assert (done.returncode, done.stderr) == (2, line)


@pytest.mark.usefixtures("bare")
def test_only_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that is installed is not named."""
    assert missing(METERING) == ["numpy>=2,<3", "pyarrow>=18"]
    monkeypatch.delitem(sys.modules, "numpy")
    assert missing(METERING) == ["pyarrow>=18"]
    assert need(["pyarrow>=18"]) == "needs pyarrow, which is not installed"
    assert remedy(["pyarrow>=18"]) == 'run `pip install "pyarrow>=18"` where Sluice is installed'


def test_extras_and_remedies_have_the_same_packages() -> None:
    """The extras in pyproject.toml have the packages and versions that the remedies name."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    parts = {"topic": TOPIC, "fleet": (*TOPIC, *FLEET), "metering": METERING, "demo": DEMO}
    assert {name: set(extras[name]) for name in parts} == {name: {REQUIREMENTS[one] for one in modules} for name, modules in parts.items()}
    assert set(extras["metering"]) < set(extras["pipeline"])


def test_a_remedy_names_no_extra() -> None:
    """No message of the product names an extra of a package that is not on any index."""
    packages = ("proxy", "pipeline", "sluice", "sluice_cli", "metering_format")
    naming = [str(path) for package in packages for path in (ROOT / package).rglob("*.py") if "kafka-sluice[" in path.read_text()]
    assert naming == []
