"""`sluice meter archive`: what the executors of a cluster unpack. `test_spark_cluster.py` uses one."""

import importlib.metadata
import re
import subprocess
import tarfile
from pathlib import Path, PurePosixPath

import pytest
from click.testing import CliRunner

from pipeline.errors import BadInputError
from pipeline.spark import archive as archives
from pipeline.spark.failures import error_of
from sluice_cli.meter import meter
from tests.support.places import ROOT


def test_an_archive_has_sluice_and_what_it_imports(tmp_path: Path) -> None:
    """It has all modules of Sluice's packages, the compiled parts of the others at the installed versions, and no tests."""
    out = tmp_path / "sluice.tar"
    done = CliRunner().invoke(meter, ["archive", str(out)])
    assert done.exit_code == 0, done.output
    with tarfile.open(out) as archive:
        names = set(archive.getnames())
    listed = subprocess.run(["git", "ls-files", *archives.OWN], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert set(listed) <= names
    assert not {
        name for name in names if "tests" in PurePosixPath(name).parts or PurePosixPath(name).parts[0] in ("proxy", "pyspark", "..")
    }
    for name in archives.REQUIRED:
        version = importlib.metadata.version(name)
        assert f"{name} {version}" in done.output
        assert any(re.match(rf"{name.replace('-', '_')}-{re.escape(version)}\.dist-info/", one) for one in names)
    assert any(re.match(r"pyarrow/lib\..*\.so$", name) for name in names)
    assert f"--conf spark.archives={out}#sluice --conf spark.executorEnv.PYTHONPATH=./sluice" in done.output


def test_a_name_that_spark_does_not_unpack_is_refused(tmp_path: Path) -> None:
    """Another end of the name is bad input, and nothing is written."""
    done = CliRunner().invoke(meter, ["archive", str(tmp_path / "sluice.rar")])
    assert (done.exit_code, "name it sluice.tar.gz" in done.output) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_a_package_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a package that executors need, no archive is written."""
    monkeypatch.setattr(archives, "REQUIRED", ("numpy", "no-such-package"))
    with pytest.raises(BadInputError, match=r"no-such-package is not installed; run `pip install"):
        archives.pack(tmp_path / "sluice.tar.gz")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Traceback:\nModuleNotFoundError: No module named 'pyarrow'\n", "no Python package pyarrow; `sluice meter archive"),
        ("[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than 3.11\n", "another Python .*; set PYSPARK_PYTHON"),
    ],
)
def test_a_worker_without_the_packages_is_reported_with_its_remedy(text: str, said: str) -> None:
    """A job whose workers have no package, or another Python, ends with one line that says what to do."""
    reported = error_of(f"Job aborted due to stage failure: Task 1 failed: {text}\tat a.b(C.java:1)\n")
    assert isinstance(reported, BadInputError)
    assert re.search(said, str(reported))
