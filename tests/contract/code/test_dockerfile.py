"""The files that describe the images; `make platform` builds and runs them."""

import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[3]
HEALTHCHECK_SECONDS_MAX = 60
BUILD_SECONDS_MAX = 120


class Instruction(NamedTuple):
    """One line of the Dockerfile, with its continuation lines joined."""

    word: str
    rest: str


class Stage(NamedTuple):
    """The instructions between two FROM instructions."""

    base: str
    name: str
    instructions: list[Instruction]

    def all(self, word: str) -> list[str]:
        """Return the arguments of every instruction with this keyword."""
        return [instruction.rest for instruction in self.instructions if instruction.word == word]


def read_stages() -> list[Stage]:
    """Return the stages of the Dockerfile; the default of each ARG is inserted into their bases."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    stages: list[Stage] = []
    defaults: dict[str, str] = {}
    for line in filter(str.strip, text.splitlines()):
        word, rest = line.split(None, 1)
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            stages.append(Stage(re.sub(r"\$\{(\w+)\}", lambda found: defaults[found[1]], base), name, []))
        elif not stages:
            assert word == "ARG"
            name, _, default = rest.partition("=")
            defaults[name] = default
        else:
            stages[-1].instructions.append(Instruction(word, rest))
    return stages


STAGES = {stage.name: stage for stage in read_stages()}
TOOLS, WHEEL, RUN = STAGES["tools"], STAGES["wheel"], STAGES["run"]
TARGETS = ("proxy", "meter")
PACKAGES = ("protocol", "quota", "metering_format", "proxy", "pipeline", "sluice", "sluice_cli")


def copied_files(*stages: Stage) -> list[str]:
    """Return the files that these stages copy from the repository; all stages without arguments."""
    copies = [rest for stage in stages or STAGES.values() for rest in stage.all("COPY") if not rest.startswith("--from")]
    return [source for rest in copies for source in rest.split()[:-1]]


def test_the_stages_have_one_python() -> None:
    """What is built and what runs has the same base image; a target is the stage `run` with one environment that was built for it."""
    assert TOOLS.base == RUN.base
    assert list(STAGES)[-1] == "proxy"  # what `docker build` builds without --target
    for target in TARGETS:
        assert STAGES[f"{target}-packages"].base == WHEEL.base == "tools"
        assert STAGES[target].base == "run"
        assert STAGES[target].instructions == [Instruction("COPY", f"--from={target}-packages /opt/sluice /opt/sluice")]


def test_only_the_target_meter_has_arrow() -> None:
    """The packages of the proxy are without pyarrow and Spark; those of `meter` write all tables, and are without Spark."""
    proxy, meter = (set(re.findall(r"^([a-z0-9-]+)==", (ROOT / file).read_text(), re.MULTILINE)) for file in requirements())
    assert {"aiokafka", "numpy"} <= proxy
    assert {"deltalake", "duckdb", "pyarrow", "pyiceberg", "sqlalchemy"} <= meter - proxy
    assert "pyspark" not in meter


def requirements() -> list[str]:
    """Return the file of requirements of each target."""
    return [copied_files(STAGES[f"{target}-packages"])[0] for target in TARGETS]


def test_the_base_is_pinned_by_digest() -> None:
    """The base image is pinned by a digest that the operations page names, and nothing but Python packages is downloaded."""
    found = re.fullmatch(r"python:3\.11\.\d+-slim-[a-z]+@sha256:(?P<digest>[0-9a-f]{64})", TOOLS.base)
    assert found is not None
    assert found["digest"] in (ROOT / "docs/how-to/operations.md").read_text()
    commands = " ".join(rest for stage in STAGES.values() for rest in stage.all("RUN"))
    assert re.findall(r"\b(apt-get|apt|curl|wget|git)\b", commands) == []
    assert not any(stage.all("ADD") for stage in STAGES.values())


def test_what_is_copied_exists_and_is_not_ignored() -> None:
    """Every copied file exists, and .dockerignore admits exactly the copied files."""
    assert [source for source in copied_files() if not (ROOT / source).exists()] == []
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in lines
    assert {line[1:] for line in lines if line.startswith("!")} == set(copied_files())


def test_every_package_from_an_index_has_its_hash() -> None:
    """Every pip command either requires hashes or uses no index."""
    runs = [rest for stage in STAGES.values() for rest in stage.all("RUN")]
    installs = [call for rest in runs for call in rest.split("&&") if re.search(r"pip .*\binstall\b", call)]
    assert len(installs) == 5
    assert all("--require-hashes" in call or "--no-index --no-deps" in call for call in installs)
    for name in re.findall(r"-r (\S+)", " ".join(installs)):
        assert "--hash=sha256:" in (ROOT / name).read_text()


def test_it_runs_as_an_unprivileged_user_and_ends_by_sigterm() -> None:
    """The image runs as a numeric user other than 0, and its stop signal is SIGTERM."""
    (user,) = RUN.all("USER")
    assert all(part.isdecimal() and int(part) > 0 for part in user.split(":"))
    assert RUN.all("STOPSIGNAL") == ["SIGTERM"]
    words = [instruction.word for instruction in RUN.instructions]
    assert "RUN" not in words[words.index("USER") :]


def test_it_starts_the_proxy() -> None:
    """The entry point and the command are lists, so that no shell runs between the signal and the proxy."""
    assert json.loads(RUN.all("ENTRYPOINT")[0]) == ["sluice"]
    assert json.loads(RUN.all("CMD")[0]) == ["run", "--config", "/etc/sluice/sluice.toml"]


VARIABLES = dict(variable.split("=", 1) for rest in RUN.all("ENV") for variable in rest.split() if not variable.startswith("PATH="))


def test_the_health_check_reads_the_file_that_it_runs_with() -> None:
    """The variable that names the configuration to the health check names the file that the command runs with."""
    assert VARIABLES["SLUICE_CONFIG"] in json.loads(RUN.all("CMD")[0])


class Health(http.server.BaseHTTPRequestHandler):
    """Answers with the status code that its server was given."""

    def do_GET(self) -> None:
        self.send_response(self.server.status if self.path == "/healthz" else 404)  # type: ignore[attr-defined]
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.mark.parametrize(("status", "exit_code"), [(200, 0), (503, 1), (None, 1)], ids=["healthy", "unhealthy", "gone"])
def test_the_health_check_tells_health(status: int | None, exit_code: int) -> None:
    """The command of HEALTHCHECK fails when Sluice answers 503 or not at all, and ignores the variable http_proxy."""
    command = json.loads(RUN.all("HEALTHCHECK")[0].split("CMD ", 1)[1])
    assert command == ["sluice", "health"]
    with http.server.HTTPServer(("127.0.0.1", 0), Health) as server:
        server.status = status  # type: ignore[attr-defined]
        address = f"127.0.0.1:{server.server_port}"
        if status is None:
            server.server_close()
        thread = threading.Thread(target=server.serve_forever if status else lambda: None)
        thread.start()
        done = subprocess.run(
            [sys.executable, "-m", "sluice_cli", *command[1:]],
            env={**os.environ, **VARIABLES, "SLUICE_ADMIN": address, "http_proxy": "http://127.0.0.1:1"},
            capture_output=True,
            timeout=HEALTHCHECK_SECONDS_MAX,
            check=False,
        )
        if status:
            server.shutdown()
        thread.join()
    assert done.returncode == exit_code


def test_the_wheel_builds_from_what_is_copied(tmp_path: Path) -> None:
    """The wheel builds from the files that its stage has; it has all packages with their data, examples and the command, and no tests."""
    source = tmp_path / "src"
    for name in copied_files(TOOLS, WHEEL):
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, target)
    (call,) = [part for rest in WHEEL.all("RUN") for part in rest.split("&&") if "hatchling" in part]
    arguments = call.split()[1:]
    arguments[arguments.index("/dist")] = str(tmp_path / "dist")
    subprocess.run([sys.executable, *arguments], cwd=source, check=True, capture_output=True, timeout=BUILD_SECONDS_MAX)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
        (entry_points,) = [name for name in names if name.endswith("entry_points.txt")]
        assert "sluice = sluice_cli.__main__:main" in packed.read(entry_points).decode()
    assert "protocol/apis.json" in names
    assert {
        f"sluice_cli/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "examples").rglob("*.*") if path.suffix != ".pyc"
    } <= names
    assert {name.split("/")[0] for name in names if not name.split("/")[0].endswith(".dist-info")} == set(PACKAGES)
    sources = {path.relative_to(ROOT).as_posix() for folder in PACKAGES for path in (ROOT / folder).rglob("*.py")}
    assert sources <= names
