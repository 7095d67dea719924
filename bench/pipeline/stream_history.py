"""`sluice meter stream` after many batches: what a call costs when it starts, what each batch costs the driver, and a call as a command."""

import hashlib
import itertools
import json
import multiprocessing
import resource
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

import msgspec

from bench.metering.trace import START_MS, Shape, decide, write
from bench.pipeline.measured_command import measured_command
from metering_format.manifest import Manifest, manifest_text
from metering_format.places import file_set_name
from pipeline.manifest import FoundManifest, find_manifests
from pipeline.spark.stream.folder_output import FolderOutput
from pipeline.stream import ledger
from pipeline.stream.batch_files import WIDTHS
from pipeline.stream.checkpoint import begin_query, put_planned
from pipeline.stream.history import History
from pipeline.stream.judged import Judged, judged_files
from pipeline.stream.listing import Listed, Listing
from pipeline.stream.result import Written
from pipeline.validation.file_set_verdict import FileSetVerdict

MERGED, EACH = "merged", "a file each"
HISTORIES = ((1_000, MERGED), (5_000, MERGED), (20_000, EACH), (20_000, MERGED), (50_000, MERGED))
"""Number of batches before, and whether their markers are merged, or a file each as an earlier version left them."""
COMMAND_MAX = 20_000
"""Number of batches up to which the command is run, too: it ends with the rules over all of them."""
FILE_SETS_OF_RUN = 2_016
"""A week, with a file set for each five minutes."""
FILE_SET_MS, HOUR_MS = 300_000, 3_600_000
BATCHES = 200
"""Number of batches that are timed."""
NEW = Shape(3_000, groups=6, seconds=60, file_set_seconds=60)
"""The file set that the command finds."""
HEADER = (
    "| batches before | markers | files | start, s (CPU) | MiB at most | each batch, ms (CPU) | median | the listing | longest "
    "| `stream --once`, s | s (CPU) |",
    "|---|---|---|---|---|---|---|---|---|---|---|",
)


class Arm(NamedTuple):
    """A history in one form.

    Attributes:
        files: number of files with markers.
        seconds: processor time in which a call reads what has landed.
        mib_max: the largest memory of its process, without a JVM.
        batch_ms, batch_ms_p50, batch_ms_max: processor time of the driver for a batch with one file set, without Spark's: mean, median
            and maximum. A batch in a hundred merges markers.
        listing_ms: of it the listing of the metering directory, mean.
        command_seconds, command_cpu_seconds: of the whole command with one new file set; None: not run.
    """

    history: int
    form: str
    files: int
    seconds: float
    mib_max: int
    batch_ms: float
    batch_ms_p50: float
    listing_ms: float
    batch_ms_max: float
    command_seconds: float | None = None
    command_cpu_seconds: float | None = None

    def line(self) -> str:
        """Return the row of the table."""
        command = " | ".join("" if one is None else f"{one:.1f}" for one in (self.command_seconds, self.command_cpu_seconds))
        parts = (self.batch_ms, self.batch_ms_p50, self.listing_ms, self.batch_ms_max)
        times = f"{self.seconds:.2f} | {self.mib_max:,} | {' | '.join(f'{one:.1f}' for one in parts)}"
        return f"| {self.history:,} | {self.form} | {self.files:,} | {times} | {command} |"


def measured_histories(folder: Path) -> Iterator[Arm]:
    """Measure each history, and those with merged markers also by the command, unless they are long.

    Raises:
        RuntimeError: the command does not land its file set, or is not clean.
    """
    template = find_manifests(write(folder / "template", NEW, decide(NEW)))[0]
    for number, form in HISTORIES:
        root = folder / "history"
        _write_history(root, template, number, is_merged=form == MERGED)
        arm = _in_its_process(root, number, form)
        yield _of_command(folder, root, arm) if form == MERGED and number <= COMMAND_MAX else arm
        shutil.rmtree(root)


def _of_command(folder: Path, root: Path, arm: Arm) -> Arm:
    """Let the command land one file set more."""
    write(root / "in", NEW, decide(NEW))
    where = ["--from", str(root / "in"), "--checkpoint", str(root / "checkpoint"), "--out", str(root / "out"), "--once"]
    done = measured_command(["meter", "stream", *where, "--format", "json"], folder / "stream.json")
    result = json.loads(done.output)
    if (result["verdict"], result["file_sets"], result["file_sets_in_all"]) != ("exact", 1, arm.history + BATCHES + 1):
        raise RuntimeError(f"the stream did not land one file set: {result}")
    return arm._replace(command_seconds=done.seconds, command_cpu_seconds=done.cpu_seconds)


def _write_history(root: Path, template: Manifest, number: int, *, is_merged: bool) -> None:
    """Write manifests, markers and verdicts of batches with one file set each. Retention has removed their files."""
    out = root / "out"
    ledger.claim(out, begin_query(root / "checkpoint", ledger.name_of(out)))
    for folder in (ledger.BATCHES, "_judged"):
        (out / folder).mkdir()
    for batch_id, manifest in zip(range(number), _manifests(template), strict=False):
        found = _put_manifest(root / "in", manifest)
        marker = ledger.Marker({found.path: found.sha256}, {"verdicts": 1}, 0, [], [manifest])
        ledger.marker_files(out).path(batch_id).write_bytes(msgspec.json.encode(marker))
        judged_files(out).path(batch_id).write_bytes(msgspec.json.encode([_judged(manifest)]))
        if is_merged and (batch_id + 1) % WIDTHS[0] == 0:
            for files in (ledger.marker_files(out), judged_files(out)):
                files.merge(batch_id + 1)


def _manifests(template: Manifest) -> Iterator[Manifest]:
    """Yield the file sets of runs of a week each, before the one of the command."""
    decisions = template.last_seq + 1
    for number in itertools.count():
        run, position = divmod(number, FILE_SETS_OF_RUN)
        run_id, first_seq, ts_ms = f"20250101T000000Z-{run:08x}", position * decisions, START_MS + number * FILE_SET_MS
        previous = file_set_name(run_id, first_seq - decisions) if position else None
        place = f"{number // (HOUR_MS // FILE_SET_MS):08d}/{file_set_name(run_id, first_seq)}"
        yield msgspec.structs.replace(
            template,
            run_id=run_id,
            previous=previous,
            first_seq=first_seq,
            last_seq=first_seq + decisions - 1,
            first_ts_ms=ts_ms,
            last_ts_ms=ts_ms + FILE_SET_MS - 1,
            final=position == FILE_SETS_OF_RUN - 1,
            files=tuple(msgspec.structs.replace(one, path=f"{one.table}/{place}.parquet") for one in template.files),
        )


def _put_manifest(source: Path, manifest: Manifest) -> FoundManifest:
    text = manifest_text(manifest)
    path = "manifests/" + manifest.files[0].path.split("/", 1)[1].replace(".parquet", ".json")
    (source / path).parent.mkdir(parents=True, exist_ok=True)
    (source / path).write_bytes(text)
    return FoundManifest(path, manifest, hashlib.sha256(text).hexdigest(), len(text))


def _judged(manifest: Manifest) -> Judged:
    return Judged(manifest, FileSetVerdict(manifest.file_set, manifest.last_seq + 1 - manifest.first_seq, counts=manifest.counts))


def _in_its_process(root: Path, number: int, form: str) -> Arm:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_measured, root, number, form).result()


def _measured(root: Path, number: int, form: str) -> Arm:
    """Read a history, and land batches after it as `Batches` does, without what Spark does."""
    files = len(list((root / "out" / ledger.BATCHES).iterdir()))
    began = time.process_time()
    output, listing = FolderOutput(None, root / "out"), Listing(root / "in")
    output.check(root / "checkpoint")
    there = listing.now()
    history = History(there, output.landed())
    seconds = time.process_time() - began
    times, listings = [], []
    template = next(iter(next(ledger.read_markers(root / "out"))[1].manifests))
    for batch_id, manifest in zip(range(number, number + BATCHES), itertools.islice(_manifests(template), number, None), strict=False):
        _put_manifest(root / "in", manifest)
        began = time.process_time()
        there = listing.now()
        listings.append(1_000 * (time.process_time() - began))
        _land(batch_id, root, history, there, output)
        times.append(1_000 * (time.process_time() - began))
    mib_max = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1_024
    return Arm(number, form, files, seconds, mib_max, fmean(times), median(times), fmean(listings), max(times))


def _land(batch_id: int, root: Path, history: History, there: Listed, output: FolderOutput) -> None:
    [path] = [path for path in there.new if path not in history]
    found = there.read([path])
    put_planned(root / "checkpoint", batch_id, [path])
    fresh = history.add(found)
    history.look_ahead(fresh, there, {Path(path).stem: path})
    history.works(fresh, there)
    output.publish(batch_id, found, Written(1), [_judged(one) for one in fresh])
    history.new_losses({(one.proxy_id, one.run_id) for one in fresh}, {})
