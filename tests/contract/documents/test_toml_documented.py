"""Every TOML block of the documents loads as a configuration, quotas, switches, pacings or prices."""

import re
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

from pipeline.rollup.prices import read_prices
from proxy.config.load import ConfigSource
from proxy.config.problem import ConfigProblems
from proxy.quota_store.file.store import read_quota_file
from tests.support.documents import DOCUMENTS, ROOT
from tests.support.tls.certificates import Authority

UPSTREAM = '[upstream]\nbootstrap = "kafka.example.org:9092"\n'
LISTENER = '[[listener]]\naddress = "127.0.0.1:19092"\n'


class Block(NamedTuple):
    """A TOML block and its place in the document."""

    place: str
    text: str


def blocks() -> list[Block]:
    """Return the TOML blocks of all documents."""
    return [
        Block(f"{path.relative_to(ROOT)}:{match.string.count(chr(10), 0, match.start()) + 2}", match[1])
        for path in DOCUMENTS
        for match in re.finditer(r"^```toml\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE)
    ]


def load(text: str, folder: Path) -> None:
    """Read a block with the reader that the program uses for it.

    Raises:
        ConfigProblems, BadInputError, tomllib.TOMLDecodeError: the block is not valid.
    """
    tables = tomllib.loads(text)
    file = folder / "block.toml"
    file.write_text(text)
    if "price" in tables:
        read_prices(file)
    elif {"quota", "switch", "pacing"} & tables.keys():
        read_quota_file(file)
    else:
        with file.open("a") as whole:
            whole.write("" if "bootstrap" in tables.get("upstream", {}) else UPSTREAM)
            whole.write("" if "listener" in tables else LISTENER)
        ConfigSource(file).load()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the files that the blocks name."""
    authority = Authority(tmp_path, "ca")
    for name in ("server", "sluice", "admin"):
        issued = authority.issue(name, hosts=("kafka.example.org", "*.kafka.example.org"))
        (tmp_path / f"{name}.pem").write_bytes(issued.certificate.read_bytes())
    (tmp_path / "brokers.pem").write_bytes(authority.file.read_bytes())
    (tmp_path / "quotas.toml").touch(mode=0o600)
    secrets = {
        "zookeeper.auth": "sluice:secret",
        "password": "secret",
        "fleet.secret": "0" * 32,
        "ops.token": "0123456789abcdef",
        "prometheus.token": "0123456789abcdef",
    }
    for name, secret in secrets.items():
        (tmp_path / name).touch(mode=0o600)
        (tmp_path / name).write_text(secret)
    (tmp_path / "bus").mkdir(mode=0o700)
    return tmp_path


@pytest.mark.parametrize("block", blocks(), ids=lambda block: block.place)
def test_each_block_loads(block: Block, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every TOML block loads; a part of a configuration loads together with a minimal configuration."""
    monkeypatch.syspath_prepend(str(ROOT))
    load(block.text.replace("/run/secrets/sluice-password", str(folder / "password")), folder)


def test_a_wrong_key_is_found(folder: Path) -> None:
    """A block with an unknown key does not load."""
    with pytest.raises(ConfigProblems, match="no_such_key"):
        load("[quotas]\nno_such_key = 1\n", folder)
