"""Jars from Maven, and classes that are compiled against them, below build/. Nothing is done twice for the same sources."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.support.places import BUILD

_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
_QUICK_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")  # the optimizing compiler takes half of the CPU time of a short program


class JavaBuildError(Exception):
    """Maven or the compiler failed; the text has the end of what it printed."""


def are_fetched(pom: Path, home: Path) -> bool:
    """Whether `fetch` has nothing to do."""
    return _is_made_from(home / ".jars", pom)


def fetch(pom: Path, home: Path) -> Path:
    """Return the folder with the jars of a `pom.xml`; missing ones are fetched first, after all of `home` is removed.

    Raises:
        JavaBuildError: Maven failed.
    """
    jars = home / "lib"
    if are_fetched(pom, home):
        return jars
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    options = (f"-Dmaven.repo.local={BUILD / 'maven'}", "-DincludeScope=runtime", f"-DoutputDirectory={jars}")
    _run(["mvn", "-B", "-q", "-f", str(pom), _COPY, *options], f"Maven could not fetch the jars of {pom.name}")
    _mark(home / ".jars", pom)
    return jars


def are_compiled(sources: Sequence[Path], home: Path) -> bool:
    """Whether `compile_sources` has nothing to do."""
    return _is_made_from(home / ".classes", *sources) and (home / "classes.jar").exists()


def compile_sources(sources: Sequence[Path], jars: Path, home: Path) -> Path:
    """Return the jar of compiled sources, not their folder: a class path with a folder cannot be archived.

    Raises:
        JavaBuildError: the compiler failed.
    """
    classes, jar = home / "classes", home / "classes.jar"
    if are_compiled(sources, home):
        return jar
    shutil.rmtree(classes, ignore_errors=True)
    problem = f"the classes of {sources[0].parent.name} do not compile against {home.name}"
    quick = [f"-J{option}" for option in _QUICK_JVM]
    _run(["javac", *quick, "-nowarn", "-proc:none", "-cp", f"{jars}/*", "-d", str(classes), *map(str, sources)], problem)
    _run(["jar", "--create", "--file", str(jar), "-C", str(classes), "."], problem)
    _mark(home / ".classes", *sources)
    return jar


def _run(command: list[str], problem: str) -> None:
    environment = {"MAVEN_OPTS": " ".join(_QUICK_JVM), **os.environ}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900, env=environment)
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise JavaBuildError(f"{problem}:\n{said}")


def _is_made_from(marker: Path, *sources: Path) -> bool:
    return marker.exists() and marker.read_text() == _digest(*sources)


def _mark(marker: Path, *sources: Path) -> None:
    marker.write_text(_digest(*sources))


def _digest(*sources: Path) -> str:
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
