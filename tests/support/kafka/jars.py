"""Apache Kafka from Maven: the jars of one version, and a few classes of this project that are compiled against them, under build/."""

import hashlib
import os
import shutil
import subprocess
import threading
from pathlib import Path

from tests.support.places import BUILD, ROOT
from tests.support.tools import missing_to_fetch, missing_to_run

KRAFT = "4.3.1"
ZOOKEEPER = "3.9.1"
VERSIONS = (KRAFT, ZOOKEEPER)
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
_JAVA_SOURCES = ROOT / "tests/support/java"
_QUICK_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")  # the optimizing compiler takes half of the CPU time of a short program
_lock = threading.Lock()


class KafkaUnavailableError(Exception):
    """A real broker is not available on this machine; the text says what is missing."""


def class_path(version: str) -> str:
    """Return the class path of `version`; missing jars and classes are fetched and compiled first (about 5 s, once).

    Raises:
        KafkaUnavailableError: a tool is missing, or Maven or the compiler failed.
    """
    needs_fetching = not _is_fetched(version)
    if missing := missing_to_run() + (missing_to_fetch() if needs_fetching else ()):
        raise KafkaUnavailableError("missing: " + ", ".join(missing))
    with _lock:
        jars = _fetch(version)
        classes = _compile(version, jars)
    return f"{classes}:{jars}/*"


def class_archive_of(version: str) -> Path:
    """Return the path of the archive of classes of a version; see `class_archive`."""
    return BUILD / f"kafka-{version}" / "classes.jsa"


def _pom(version: str) -> Path:
    return Path(__file__).with_name(f"pom-{version}.xml")


def _is_fetched(version: str) -> bool:
    return _is_made_from(BUILD / f"kafka-{version}" / ".jars", _pom(version))


def _fetch(version: str) -> Path:
    pom = _pom(version)
    home = BUILD / f"kafka-{version}"
    jars = home / "lib"
    if _is_fetched(version):
        return jars
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    _run(
        [
            "mvn",
            "-B",
            "-q",
            "-f",
            str(pom),
            f"-Dmaven.repo.local={BUILD / 'maven'}",
            _COPY,
            "-DincludeScope=runtime",
            f"-DoutputDirectory={jars}",
        ],
        f"Maven could not fetch Apache Kafka {version}",
    )
    _mark(home / ".jars", pom)
    return jars


def _compile(version: str, jars: Path) -> Path:
    """Return the jar of this project's classes; a class path with a folder cannot be archived."""
    home = BUILD / f"kafka-{version}"
    classes, jar = home / "classes", home / "classes.jar"
    sources = sorted(_JAVA_SOURCES.glob("*.java"))
    if _is_made_from(home / ".classes", *sources) and jar.exists():
        return jar
    shutil.rmtree(classes, ignore_errors=True)
    class_archive_of(version).unlink(missing_ok=True)
    problem = f"the classes of tests/support/java do not compile against Kafka {version}"
    _run(
        [
            "javac",
            *(f"-J{option}" for option in _QUICK_JVM),
            "-nowarn",
            "-proc:none",
            "-cp",
            f"{jars}/*",
            "-d",
            str(classes),
            *map(str, sources),
        ],
        problem,
    )
    _run(["jar", "--create", "--file", str(jar), "-C", str(classes), "."], problem)
    _mark(home / ".classes", *sources)
    return jar


def _run(command: list[str], problem: str) -> None:
    environment = {"MAVEN_OPTS": " ".join(_QUICK_JVM), **os.environ}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900, env=environment)
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise KafkaUnavailableError(f"{problem}:\n{said}")


def _is_made_from(marker: Path, *sources: Path) -> bool:
    return marker.exists() and marker.read_text() == _digest(*sources)


def _mark(marker: Path, *sources: Path) -> None:
    marker.write_text(_digest(*sources))


def _digest(*sources: Path) -> str:
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
