"""A REST catalog of Iceberg tables on loopback: the server that Iceberg's own tests have, over a catalog in SQLite."""

import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.pipeline.support.iceberg_catalog import FolderCatalog
from tests.support.java.build import compile_sources, fetch
from tests.support.places import BUILD

STOP_SECONDS = 30
_HERE = Path(__file__).parent
_HOME = BUILD / "rest-catalog"
_JVM = ("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")


@dataclass(frozen=True, kw_only=True)
class RestCatalog(FolderCatalog):
    """A catalog that a REST server has, whose tables are files of the folder.

    Attributes:
        url: of the server.
    """

    url: str

    @property
    def properties(self) -> dict[str, str]:
        return {"type": "rest", "uri": self.url}


@contextlib.contextmanager
def rest_catalog(folder: Path) -> Iterator[RestCatalog]:
    """Yield a catalog whose server runs inside the block; jars (82 MB) are fetched first if they are missing."""
    jars = fetch(_HERE / "pom.xml", _HOME)
    classes = compile_sources([_HERE / "RestCatalog.java"], jars, _HOME)
    command = [*_JVM, "-cp", f"{classes}:{jars}/*", "RestCatalog", str(folder)]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        yield RestCatalog(folder, url=f"http://127.0.0.1:{int(server.stdout.readline())}")
    finally:
        server.stdin.close()
        try:
            server.wait(STOP_SECONDS)
        finally:
            server.kill()
            server.stdout.close()
