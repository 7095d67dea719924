"""Fixtures of the platform tests: a clone of HEAD with its release, and the images that are built from it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.places import BUILD, ROOT
from tests.support.platform.images import Images
from tests.support.platform.release import RELEASE_PYTHON, clone_of_head, make_release

collect_ignore_glob = [] if os.environ.get("PLATFORM") else ["test_*.py"]
"""`make test` collects none of these tests."""


@pytest.fixture(scope="session")
def platform_folder() -> Path:
    """A folder that stays after the run: it has the base image and the layers of the images."""
    folder = BUILD / "platform"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone of HEAD: what is not committed is in no image and no wheel."""
    return clone_of_head(tmp_path_factory.mktemp("checkout") / "sluice")


@pytest.fixture(scope="session")
def wheel(checkout: Path) -> Path:
    """The wheel of a release."""
    (found,) = make_release(checkout, checkout / "dist").glob("*.whl")
    return found


@pytest.fixture(scope="session")
def images(platform_folder: Path, checkout: Path) -> Iterator[Images]:
    """The base image, and the two targets of the Dockerfile, built."""
    built = Images(platform_folder, checkout)
    built.build_all()
    yield built
    built.remove_containers()


def pytest_sessionstart() -> None:
    """Name what is missing before anything is built."""
    if not collect_ignore_glob and not RELEASE_PYTHON.exists():
        subprocess.run(["make", "--no-print-directory", "build/release/.done", f"PYTHON={sys.executable}"], cwd=ROOT, check=True)
