"""Finds the programs that tests with real brokers need, and names missing ones."""

import functools
import os
import re
import shutil
import subprocess

import pytest

JAVA_VERSION_MIN = 17


def in_ci() -> bool:
    """Whether this is a CI run, where a missing broker is a failure instead of a skip."""
    return os.environ.get("CI", "").lower() in {"1", "true", "yes"}


@functools.cache
def missing_to_run() -> tuple[str, ...]:
    """Name what is missing to run and compile Java; "" when nothing is."""
    missing = []
    if not shutil.which("java"):
        missing.append(f"java (a JDK, {JAVA_VERSION_MIN} or newer)")
    elif java_version() < JAVA_VERSION_MIN:
        missing.append(f"a JDK of version {JAVA_VERSION_MIN} or newer (found {java_version()})")
    if not shutil.which("javac"):
        missing.append("javac (a JDK, not only a JRE)")
    return tuple(missing)


@functools.cache
def missing_to_fetch() -> tuple[str, ...]:
    """Name what else is missing to fetch a broker that is not in build/ yet."""
    return () if shutil.which("mvn") else ("mvn (Apache Maven)",)


def java_version() -> int:
    """Return the major version of the `java` on the path, 0 when unknown."""
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', said)
    return int(found[1]) if found else 0


def require_tool(name: str, package: str) -> str:
    """Return the path of a program of a Debian package; skip the test when it is missing, fail in CI.

    Args:
        name: the program.
        package: the package, which `make debian` installs.
    """
    found = shutil.which(name)
    if found is None:
        reason = f"no {name}: `make debian` installs {package}, or apt-get install {package}"
        if in_ci():
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return found
