"""Apache Kafka from Maven: the jars of one version, and a few classes of this project that are compiled against them, under build/."""

import threading
from pathlib import Path

from tests.support.java.build import JavaBuildError, are_compiled, are_fetched, compile_sources, fetch
from tests.support.places import BUILD, ROOT
from tests.support.tools import missing_to_fetch, missing_to_run

KRAFT = "4.3.1"
ZOOKEEPER = "3.9.1"
VERSIONS = (KRAFT, ZOOKEEPER)
_JAVA_SOURCES = ROOT / "tests/support/java"
_lock = threading.Lock()


class KafkaUnavailableError(Exception):
    """A real broker is not available on this machine; the text says what is missing."""


def class_path(version: str) -> str:
    """Return the class path of `version`; missing jars and classes are fetched and compiled first (about 5 s, once).

    Raises:
        KafkaUnavailableError: a tool is missing, or Maven or the compiler failed.
    """
    needs_fetching = not are_fetched(_pom(version), _home(version))
    if missing := missing_to_run() + (missing_to_fetch() if needs_fetching else ()):
        raise KafkaUnavailableError("missing: " + ", ".join(missing))
    with _lock:
        try:
            jars = fetch(_pom(version), _home(version))
            classes = _compile(version, jars)
        except JavaBuildError as error:
            raise KafkaUnavailableError(str(error)) from error
    return f"{classes}:{jars}/*"


def class_archive_of(version: str) -> Path:
    """Return the path of the archive of classes of a version; see `class_archive`."""
    return _home(version) / "classes.jsa"


def _pom(version: str) -> Path:
    return Path(__file__).with_name(f"pom-{version}.xml")


def _home(version: str) -> Path:
    return BUILD / f"kafka-{version}"


def _compile(version: str, jars: Path) -> Path:
    """Return the jar of this project's classes. An archive of the classes of before goes."""
    sources = sorted(_JAVA_SOURCES.glob("*.java"))
    if not are_compiled(sources, _home(version)):
        class_archive_of(version).unlink(missing_ok=True)
    return compile_sources(sources, jars, _home(version))
