"""Rows of the file set before are kept for the warm-up of the next one. No verdict depends on it."""

from pathlib import Path
from typing import Any

import pytest

from pipeline.file_set import FileSet
from pipeline.manifest import find_manifests
from pipeline.validation.file_set_verdict import judge_file_set
from pipeline.validation.run_verdicts import judge_run
from tests.pipeline.validation.test_validation import batches, sensors
from tests.support.metering.metering_directory import Mutation, write_directory


def unchanged(_rows: list[dict[str, Any]]) -> None:
    """Leave the rows as they are."""


def one_more(rows: list[dict[str, Any]]) -> None:
    """Add a byte to the last decision: the rates of those after it were measured without it."""
    rows[-1]["val"][-1] += 1
    rows[-1]["sum"] += 1


@pytest.mark.parametrize("mutate", [unchanged, one_more])
@pytest.mark.parametrize("events", [5, 40, 800])
def test_kept_rows_are_those_of_the_file(tmp_path: Path, mutate: Mutation, events: int) -> None:
    """File sets of a run, judged in order, have the verdict of one that reads all rows before it, of one file set or of several."""
    file_sets = file_sets_of(write_directory(tmp_path, batches(file_sets=6, events=events), sensors(), mutate=mutate))
    alone = [judge_file_set(file_set, file_sets[:number]) for number, file_set in enumerate(file_sets)]
    assert [verdict for _, verdict in judge_run(file_sets)] == alone
    assert any(verdict.findings.total for verdict in alone) == (mutate is not unchanged)


def test_the_file_set_before_is_read_once(tmp_path: Path) -> None:
    """A file set that lasts longer than a sample lives is not needed for those after it, once it is judged."""
    file_sets = file_sets_of(write_directory(tmp_path, batches(), sensors()))
    verdicts = []
    for file_set, verdict in judge_run(file_sets):
        verdicts.append(verdict)
        for entry in file_set.manifest.files:
            if entry.table == "samples":
                (tmp_path / entry.path).unlink()
    assert [verdict.findings.total for verdict in verdicts] == [0, 0, 0]


def file_sets_of(directory: Path) -> list[FileSet]:
    """Return the file sets of the one run. Without a cache of small files, each is judged by itself."""
    return [FileSet(directory, manifest) for manifest in find_manifests(directory)]
