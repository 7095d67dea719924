"""`[fleet]` in sluice.toml: what is read, and one line for each problem."""

# ruff: noqa: E501 -- the lines that operators read are written here in one piece

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec
import pytest

from proxy.app.reload import needs_restart
from proxy.config.checks.fleet import check_fleet_needs
from proxy.config.sections.credentials import CredentialsError
from proxy.config.sections.fleet import FLEET_KEY_BYTES_MIN, Fleet, read_fleet_key
from proxy.config.toml_reader import Place
from proxy.workers.run import is_supervised
from tests.support.config_folder import complaints, load

UPSTREAM: Final = '[upstream]\nbootstrap = "kafka:9092"\n'
LISTENER: Final = '[[listener]]\naddress = "127.0.0.1:19092"\n'
HEAD: Final = UPSTREAM + LISTENER
FLEET: Final = '[fleet]\nname = "edge"\nsecret_file = "secret"\n'
KEY: Final = b"k" * FLEET_KEY_BYTES_MIN
NAME: Final = "1 to 64 letters, digits, dots, dashes or underscores"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a secret of the shortest accepted length and mode 0600, a private folder `bus` and one that is not private."""
    write(tmp_path / "secret", KEY + b"\n")
    (tmp_path / "bus").mkdir(mode=0o700)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o755)
    return tmp_path


def write(path: Path, secret: bytes, mode: int = 0o600) -> None:
    path.write_bytes(secret)
    path.chmod(mode)


def creation_of(path: Path | str) -> str:
    return f"run `(umask 077; head -c 32 /dev/urandom | base64 > {path})` once, and copy the file to every member"


def test_a_proxy_is_in_no_fleet_by_default(folder: Path) -> None:
    """Without the section there is no fleet."""
    assert load(folder, HEAD).fleet is None


def test_defaults(folder: Path) -> None:
    """A fleet with a name and a secret has the documented defaults, and its path is relative to the file."""
    assert load(folder, HEAD + FLEET).fleet == Fleet(
        name="edge",
        secret_file=folder / "secret",
        topic=None,
        directory=None,
        create=True,
        replication_factor=None,
        member=None,
        publish_ms=50,
        bytes_per_second_max=4_194_304,
    )


def test_the_bus(folder: Path) -> None:
    """Without a topic and a folder the bus is the documented topic; a folder takes its place, and its path is relative to the file."""
    plain, named, in_folder = (load(folder, HEAD + FLEET + line).fleet for line in ("", 'topic = "t"', 'directory = "bus"'))
    assert plain is not None
    assert named is not None
    assert in_folder is not None
    assert [fleet.topic_name for fleet in (plain, named, in_folder)] == ["__sluice_fleet", "t", None]
    assert in_folder.directory == folder / "bus"


def test_every_key(folder: Path) -> None:
    """Every key of the section is read."""
    keys = 'topic = "fleet-of.edge"\nreplication_factor = 2\nmember = "edge-1"\npublish_ms = 10\nbytes_per_second_max = "1MiB"\n'
    assert load(folder, HEAD + FLEET + keys).fleet == Fleet(
        name="edge",
        secret_file=folder / "secret",
        topic="fleet-of.edge",
        replication_factor=2,
        member="edge-1",
        publish_ms=10,
        bytes_per_second_max=1_048_576,
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('fleet = "edge"\n' + HEAD, 'fleet: "edge" is not a table; write [fleet]'),
        (HEAD + '[fleet]\nsecret_file = "secret"\n', f"fleet.name: is missing; write {NAME}"),
        (HEAD + '[fleet]\nname = "edge"\n', "fleet.secret_file: is missing; write the path of a file that only its owner may read"),
        (HEAD + FLEET.replace("edge", "e d"), f'fleet.name: "e d" is not a name; write {NAME}'),
        (HEAD + FLEET + f'member = "{"e" * 65}"', f'fleet.member: "{"e" * 65}" is not a name; write {NAME}'),
        (HEAD + FLEET + 'topic = "a/b"', 'fleet.topic: "a/b" is not the name of a topic; write 1 to 249 letters, digits, dots, dashes or underscores'),
        (HEAD + FLEET + 'create = "yes"', 'fleet.create: "yes" is neither true nor false; write true or false'),
        (HEAD + FLEET + "replication_factor = 0", "fleet.replication_factor: 0 is below 1; write a whole number from 1 to 100"),
        (HEAD + FLEET + "replication_factor = 2\ncreate = false", "fleet.replication_factor: has no effect without create; write create = true, or leave it out"),
        (HEAD + FLEET + "publish_ms = 9", "fleet.publish_ms: 9 is below 10; write milliseconds from 10 to 1000"),
        (HEAD + FLEET + "publish_ms = 1001", "fleet.publish_ms: 1001 is above 1000; write milliseconds from 10 to 1000"),
        (HEAD + FLEET + "bytes_per_second_max = 0", 'fleet.bytes_per_second_max: 0 is not above 0; write a whole number of bytes, such as 1048576, "1MiB" or "10MB"'),
        (HEAD + FLEET + "directory = 1", "fleet.directory: 1 is not a path; write the path of a folder that only its owner may access"),
        (HEAD + FLEET + 'directory = "bus"\ntopic = "__sluice_fleet"', "fleet.topic: is set beside directory, and a fleet has one bus; leave one of the two out"),
        (HEAD + FLEET + 'directory = "bus"\ncreate = false', "fleet.create: has no effect with directory; leave it out"),
        (HEAD + FLEET + 'directory = "bus"\nreplication_factor = 1', "fleet.replication_factor: has no effect with directory; leave it out"),
        (HEAD + FLEET + 'directory = "none"', "fleet.directory: none does not exist; run `mkdir -m 700 none`"),
        (HEAD + FLEET + 'directory = "secret"', "fleet.directory: secret is not a folder; name a folder"),
        (HEAD + FLEET + 'directory = "open"', "fleet.directory: open is accessible to other users (mode 0755); run `chmod 700 open`"),
        (HEAD + FLEET + "secret = 'x'", "fleet.secret: is not a setting; a secret stands in a file of its own: name it in secret_file"),
        (HEAD + FLEET + '[quotas]\nstore = "topic"\ntopic = "__sluice_fleet"', 'fleet.topic: "__sluice_fleet" is quotas.topic too; write another name'),
        (HEAD + FLEET + '[metering]\ndir = "m"\ntopic = "__sluice_fleet"', 'fleet.topic: "__sluice_fleet" is metering.topic too; write another name'),
        (
            "sidecar = true\n" + HEAD + FLEET,
            'fleet: cannot share the budgets of a broker (scope = "broker") in a sidecar, which does not know the node id of its broker; write enforcement.scope = "cluster", or leave out [fleet]',
        ),
        (
            UPSTREAM + 'protocol = "SASL_PLAINTEXT"\n' + LISTENER + FLEET,
            "upstream.credentials: are missing: a fleet has a topic at these brokers, and they require a login (SASL_PLAINTEXT); write [upstream.credentials]",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(folder: Path, text: str, line: str) -> None:
    """A problem of the fleet is one line with the key, what is wrong, and what to write."""
    assert complaints(folder, text) == [line]


@pytest.mark.parametrize(
    ("secret", "mode", "problem"),
    [
        (KEY, 0o660, "secret is writable or executable for its group (mode 0660); chmod 600 it"),
        (KEY, 0o604, "secret is accessible to all users (mode 0604); chmod 600 it"),
        (KEY[1:], 0o600, f"secret contains 31 bytes, fewer than 32; {creation_of('secret')}"),
        (KEY[1:] + b"\r\n", 0o600, f"secret contains 31 bytes, fewer than 32; {creation_of('secret')}"),
        (b"", 0o600, f"secret contains 0 bytes, fewer than 32; {creation_of('secret')}"),
    ],
)
def test_files_that_hold_no_secret(folder: Path, secret: bytes, mode: int, problem: str) -> None:
    """A secret that other users can access, or of fewer than 32 bytes without the line end, is refused with a remedy."""
    write(folder / "secret", secret, mode)
    assert complaints(folder, HEAD + FLEET) == [f"fleet.secret_file: {problem}"]


def test_a_missing_secret(folder: Path) -> None:
    """A missing secret is refused with the command that makes one."""
    (folder / "secret").unlink()
    (line,) = complaints(folder, HEAD + FLEET)
    assert line == f"fleet.secret_file: secret cannot be read: No such file or directory; {creation_of('secret')}"


def test_the_secret_is_read_without_its_line_end(folder: Path) -> None:
    """A secret of 32 bytes is returned without its line end."""
    assert read_fleet_key(folder / "secret") == KEY


def test_the_remedy_makes_a_secret(tmp_path: Path) -> None:
    """The command of the remedy writes a secret that Sluice accepts, whatever the name of its folder."""
    (tmp_path / "it's here").mkdir()
    path = tmp_path / "it's here/secret"
    with pytest.raises(CredentialsError) as caught:
        read_fleet_key(path)
    assert caught.value.remedy == creation_of(shlex.quote(str(path)))
    subprocess.run(["bash", "-c", caught.value.remedy.split("`")[1]], check=True)
    assert len(read_fleet_key(path)) >= FLEET_KEY_BYTES_MIN


def test_everything_that_a_fleet_needs_is_named_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret that cannot be used and a Kafka client that is not installed are reported together."""
    write(folder / "secret", KEY, 0o644)
    monkeypatch.setitem(sys.modules, "aiokafka", None)
    assert complaints(folder, HEAD + FLEET) == [
        "fleet.secret_file: secret is accessible to all users (mode 0644); chmod 600 it",
        'fleet: needs aiokafka, which is not installed; run `pip install "aiokafka>=0.12,<1"` where Sluice is installed',
    ]


@pytest.mark.parametrize("text", [HEAD, UPSTREAM + 'protocol = "SASL_PLAINTEXT"\n' + LISTENER + FLEET + 'directory = "bus"'])
def test_without_a_topic_no_kafka_client_is_needed(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Without a fleet, or with one in a folder, neither the Kafka client nor a login at the brokers is needed."""
    monkeypatch.setitem(sys.modules, "aiokafka", None)
    place = Place("f", "", [], {})
    check_fleet_needs(load(folder, text), place)
    assert place.problems == []


def test_every_contradiction_is_named_at_once(folder: Path) -> None:
    """All settings that contradict the fleet are reported together."""
    text = "sidecar = true\n" + UPSTREAM + 'protocol = "SASL_SSL"\n' + LISTENER + FLEET + "create = false\nreplication_factor = 1\n"
    lines = complaints(folder, text + '[metering]\ndir = "m"\ntopic = "__sluice_fleet"\n')
    assert [line.split(": ")[0] for line in lines] == ["fleet.replication_factor", "fleet.topic", "fleet", "upstream.credentials"]


def test_a_sidecar_shares_the_budgets_of_the_cluster(folder: Path) -> None:
    """A sidecar may be in a fleet if its budgets are those of the cluster."""
    assert load(folder, "sidecar = true\n" + HEAD + FLEET + '[enforcement]\nscope = "cluster"\n').fleet is not None


@pytest.mark.parametrize(
    "changed",
    [
        "name = 'other'",
        "secret_file = 'other'",
        "topic = 'other'",
        "directory = 'bus'",
        "create = false",
        "replication_factor = 2",
        "member = 'other'",
        "publish_ms = 51",
        "bytes_per_second_max = '5MiB'",
    ],
)
def test_a_change_needs_a_restart(folder: Path, changed: str) -> None:
    """A change of any key of the fleet needs a restart."""
    write(folder / "other", KEY)
    key = changed.partition(" ")[0]
    kept = "".join(line + "\n" for line in FLEET.splitlines() if not line.startswith(f"{key} "))
    old, new = load(folder, HEAD + FLEET), load(folder, HEAD + kept + changed)
    assert (needs_restart(old, new), needs_restart(old, old)) == (["fleet"], [])


def test_joining_and_leaving_need_a_restart(folder: Path) -> None:
    """A section that is added or removed needs a restart."""
    alone, member = load(folder, HEAD), load(folder, HEAD + FLEET)
    assert (needs_restart(alone, member), needs_restart(member, alone)) == (["fleet"], ["fleet"])


@pytest.mark.parametrize("workers", [1, 2])
def test_a_fleet_has_a_supervisor(folder: Path, workers: int) -> None:
    """A member of a fleet has a supervisor for any number of workers, and a single process without a fleet has none."""
    config = load(folder, f"workers = {workers}\n" + HEAD + FLEET)
    assert is_supervised(config)
    assert is_supervised(msgspec.structs.replace(config, fleet=None)) is (workers > 1)


def test_the_topic_may_have_the_longest_name(folder: Path) -> None:
    """A topic of 249 characters with leading underscores is accepted."""
    topic = f"__{'t' * 247}"
    fleet = load(folder, HEAD + FLEET + f'topic = "{topic}"').fleet
    assert fleet is not None
    assert fleet.topic == topic
