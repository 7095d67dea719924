"""The thread that uploads: it starts a real child process, reports its problems once, and goes on."""

from pathlib import Path

import pytest

from pipeline.manifest import find_manifests
from proxy.metering.upload import uploader
from proxy.metering.upload.uploader import Uploader
from proxy.telemetry.counters import MeteringCounts
from tests.proxy.metering.test_forget import written
from tests.proxy.metering.test_upkeep import file_sets
from tests.proxy.metering.upload.test_upload import PROXY, of_metering
from tests.support.metering.metering_rows import PROXY_ID
from tests.support.metering.object_store import Bucket
from tests.support.patience import until_true

SETTLED_S = 60


def test_it_uploads_what_is_there_and_what_comes(tmp_path: Path, bucket: Bucket) -> None:
    """File sets of earlier runs are uploaded at the start, new ones after a notice, and the counters say so."""
    written(tmp_path, "alice")
    counts, problems = MeteringCounts(), list[str | None]()
    running = Uploader(tmp_path, PROXY_ID, bucket.url, counts, problems.append)
    running.start()
    until_true(lambda: counts.file_sets_uploaded == 1, "the first upload", SETTLED_S)
    written(tmp_path, "bob", first_seq=10)
    running.notify()
    assert running.stop(SETTLED_S)
    assert bucket.contents() == of_metering(tmp_path)
    assert counts.file_sets_uploaded == 2
    assert counts.uploaded_bytes == sum(map(len, bucket.contents().values()))
    assert (counts.file_sets_to_upload, counts.upload_failures, problems) == (0, 0, [])


def test_a_store_that_is_away_is_reported_once(tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the bucket is missing every attempt fails, and one report names it; when it is there, another report ends the failure."""
    monkeypatch.setattr(uploader, "RETRY_S", 0.05)
    file_sets(tmp_path, 1)
    name = f"{bucket.name}-later"
    counts, problems = MeteringCounts(), list[str | None]()
    running = Uploader(tmp_path, PROXY, f"s3://{name}/metering", counts, problems.append)
    running.start()
    until_true(lambda: counts.upload_failures >= 2, "two attempts", SETTLED_S)
    assert len(problems) == 1
    assert str(problems[0]).startswith(f"s3://{name}/metering: ")
    assert counts.file_sets_to_upload == len(find_manifests(tmp_path))
    bucket.files.create_dir(name)
    until_true(lambda: counts.file_sets_to_upload == 0, "the upload", SETTLED_S)
    assert running.stop(SETTLED_S)
    assert (len(problems), problems[-1]) == (2, None)


def test_a_stop_does_not_wait_for_ever(tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that accepts connections and never answers holds the stop only as long as it may; the next start uploads."""
    import socket

    file_sets(tmp_path, 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        running = Uploader(tmp_path, PROXY, bucket.url, MeteringCounts(), lambda _problem: None)
        running.start()
        silent.settimeout(SETTLED_S)
        with silent.accept()[0]:
            assert not running.stop(0.1)
    monkeypatch.undo()
