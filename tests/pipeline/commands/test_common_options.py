"""Each common option works in every command, or is refused with one line that names the remedy."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pipeline.neighbours.load import JOB as LOAD
from pipeline.neighbours.load import load_of, plan_load
from pipeline.recommend.work import JOB as DEMAND
from pipeline.recommend.work import plan_demand
from pipeline.tasks import run_local
from sluice_cli.meter import with_writers
from tests.support.metering.metering_scene import Client, write_scene
from tests.support.metering.metering_topics import write_topics

CAST = [Client("orders", "checkout", "produce", 40_000.0, 9_000, 45, 2), Client("lake", "loader", "fetch", 30_000.0, 9_000, 45, 2)]
meter = with_writers()
ELSEWHERE = ("rollup", "stream")
"""Commands that run on Spark unless another engine is named."""
LOOKS = ("repair",)
"""Commands that run in this process only."""
BOTH = ("validate", "whatif", "recommend", "neighbours", "verify-manifests")
CHANGES = ("compact", "forget")
BY_HADOOP = ("inspect", *CHANGES)
"""Commands for which Hadoop only opens a URL."""


@pytest.fixture
def scene(tmp_path: Path) -> Path:
    (tmp_path / "q.toml").write_text('[[quota]]\nuser = "orders"\nproducer_byte_rate = 20000\n')
    return write_scene(tmp_path / "in", 3, clients=CAST)


def arguments_of(command: str, scene: Path) -> list[str]:
    """Return the required arguments of a command."""
    beside = scene.parent
    manifest = str(next((scene / "manifests").rglob("*.json")))
    needed = {
        "rollup": ["--in", str(scene), "--out", str(beside / "out")],
        "whatif": ["--in", str(scene), "--quotas", str(beside / "q.toml")],
        "stream": ["--from", str(scene), "--checkpoint", str(beside / "checkpoint"), "--out", str(beside / "out"), "--once"],
        "inspect": [manifest],
        "repair": [str(scene)],
        "compact": [str(scene)],
        "forget": [str(scene), "--user", "orders"],
        "verify-manifests": [str(scene)],
    }
    return [command, *needed.get(command, ["--in", str(scene)])]


def typed(command: str, scene: Path, *options: str) -> Result:
    return CliRunner().invoke(meter, [*arguments_of(command, scene), *options])


@pytest.mark.parametrize(
    ("command", "options", "said"),
    [
        ("stream", ["--engine", "local"], "--engine local: "),
        ("rollup", ["--engine", "local", "--driver-memory", "2g"], "--driver-memory: is for Spark"),
        ("rollup", ["--engine", "local", "--in", "hdfs://host/metering"], "hdfs://host/metering: not a URL of an object store; write"),
        *((command, ["--engine", "spark"], "--engine spark: ") for command in LOOKS),
        *((command, ["--master", "local[1]"], "--master local[1]: ") for command in LOOKS),
        *(
            (command, ["--engine", "spark"], "is on this machine, so this command reads it without Spark; leave it out")
            for command in BY_HADOOP
        ),
        *((command, ["--master", "local[1]"], "is on this machine, so this command reads it without") for command in BY_HADOOP),
        *(
            (command, ["--engine", "local", "--master", "local[1]"], "leave one of the two out")
            for command in (*BOTH, *BY_HADOOP, "rollup")
        ),
        *((command, ["--driver-memory", "2g"], "--driver-memory: is for Spark") for command in (*BOTH, *BY_HADOOP)),
        *((command, ["--conf", "spark.a=1"], "--conf: is for Spark") for command in (*BOTH, *BY_HADOOP)),
        *((command, ["--conf", "a=1"], '"a=1" is no setting of Spark; write spark.KEY=VALUE') for command in ELSEWHERE),
        *((command, ["--conf", "spark.a"], '"spark.a" is no setting of Spark') for command in ELSEWHERE),
        *((command, ["--conf", "spark.sql.session.timeZone=UTC"], "cannot be set here: tables have times in UTC") for command in ELSEWHERE),
        *((command, ["--conf", "spark.driver.memory=2g"], "cannot be set here: write --driver-memory") for command in ELSEWHERE),
        *((command, ["--driver-memory", "lots"], '"lots" is no size; write a number with m or g, such as 8g') for command in ELSEWHERE),
        *((command, ["--master", "nonsense"], '"nonsense" is no place where Spark runs') for command in (*BOTH, *ELSEWHERE)),
    ],
)
def test_what_a_command_cannot_do_it_says(scene: Path, command: str, options: list[str], said: str) -> None:
    """An option that a command does not support is refused in one line with the remedy and exit code 2, and nothing is printed or
    written.
    """
    before = sorted(scene.parent.rglob("*"))
    done = typed(command, scene, *options)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.output
    assert said in done.stderr
    assert sorted(scene.parent.rglob("*")) == before


@pytest.mark.parametrize("command", [*LOOKS, *BOTH, "inspect"])
def test_the_usual_engine_may_be_named(scene: Path, command: str) -> None:
    """`--engine local` changes nothing where it is the default."""
    usual, named = typed(command, scene), typed(command, scene, "--engine", "local")
    assert (named.exit_code, named.stdout) == (0, usual.stdout), named.output


@pytest.mark.parametrize("command", [*LOOKS, *BOTH, "inspect"])
def test_every_form_can_be_asked_for(scene: Path, command: str) -> None:
    """Each command prints parseable JSON, CSV with a header and rows of equal length, and a complete HTML page."""
    reported = json.loads(typed(command, scene, "--format", "json").stdout)
    assert isinstance(reported, dict)
    header, *rows = csv.reader(io.StringIO(typed(command, scene, "--format", "csv").stdout))
    assert header
    assert {len(row) for row in rows} <= {len(header)}
    page = typed(command, scene, "--format", "html").stdout
    assert page.startswith("<!doctype html>")
    assert page.endswith("</html>\n")


def test_neighbours_and_demand_on_spark_are_the_same(spark: Any, scene: Path) -> None:
    """With one Spark task per file set the results equal those of the local engine, token buckets included."""
    from pipeline.spark.tasks import run_on_spark

    topics = write_topics(scene.parent / "topics", minutes=3)
    for source in (scene, topics):
        work = plan_demand(source)
        assert run_on_spark(spark, DEMAND, work) == run_local(DEMAND, work)
    load = plan_load(scene, 10_000)
    here, there = (load_of(parts, 10_000) for parts in (run_local(LOAD, load), run_on_spark(spark, LOAD, load)))
    assert repr(here) == repr(there)


@pytest.mark.parametrize("command", ["whatif", "recommend", "inspect", "verify-manifests"])
def test_explain_adds_lines(scene: Path, command: str) -> None:
    """--explain keeps all lines of the output and adds more."""
    without, more = (typed(command, scene, *options).stdout.splitlines() for options in ([], ["--explain"]))
    assert len(more) > len(without)
    assert [line for line in without if line not in more] == []


def test_a_bound_is_traced_to_its_quota(scene: Path) -> None:
    """--explain names the entity whose quota a group gets; groups without a quota are only counted."""
    (scene.parent / "q.toml").write_text('[[quota]]\nclient-id = "<default>"\nproducer_byte_rate = 20000\n')
    lines = typed("whatif", scene, "--explain").stdout.splitlines()
    at = lines.index("client-id checkout (Produce, broker 1), under q.toml:")
    assert lines[at + 2].split(maxsplit=1) == ["bound", "20 kB/s, the quota of client-id <default>"]
    at = lines.index("client-id loader (Fetch, broker 1), under q.toml:")
    assert lines[at + 2].split(maxsplit=1) == ["bound", "none: no quota of the file holds for it"]


@pytest.mark.parametrize("command", [*LOOKS, *BOTH, *BY_HADOOP, *ELSEWHERE])
def test_help_offers_what_works(command: str) -> None:
    """The help of every command names --format and --explain, unless it changes files, and Spark only where the command supports it."""
    text = CliRunner().invoke(meter, [command, "--help"]).stdout
    assert ("--format" in text) == ("--explain" in text) == (command not in CHANGES)
    assert ("--engine" in text) == (command in (*BOTH, *BY_HADOOP, "rollup"))
    assert ("--master" in text) == ("--conf" in text) == ("--driver-memory" in text) == (command not in LOOKS)


@pytest.mark.parametrize("form", ["csv", "html"])
@pytest.mark.parametrize("command", [*LOOKS, *BOTH, "inspect", *ELSEWHERE])
def test_what_has_no_place_for_an_explanation_refuses_it(scene: Path, command: str, form: str) -> None:
    """--explain with CSV or HTML is refused in one line that names the alternative, before any file is read."""
    reported = typed(command, scene, "--explain", "--format", form)
    assert (reported.exit_code, reported.stdout, reported.stderr.count("\n")) == (2, "", 1)
    assert f"--format {form} has none" in reported.stderr


def test_repair_tells_what_it_did(scene: Path) -> None:
    """`repair` reports as JSON what it recovered, with counts."""
    reported: dict[str, Any] = json.loads(typed("repair", scene, "--format", "json").stdout)
    assert reported == {"made_whole": [], "running": [], "empty_segments": 0, "temporary_files": 0, "problems": []}
