"""What an object store has after passes that fail, end early, or meet changed files: whole file sets only, and in the end all."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pipeline.manifest import find_manifests, problems_of
from pipeline.storage.paths import path_of
from pipeline.validation.local import validate
from proxy.metering.commands.forget import forget_command
from proxy.metering.commands.upload import upload_command
from proxy.metering.forget import forget_user
from proxy.metering.retention import Removed, Retention, apply_retention
from proxy.metering.upload.file_sets import Upload
from proxy.metering.upload.store_files import StoreError, StoreFiles
from sluice.object_store import open_object_store
from tests.proxy.metering.test_forget import written
from tests.proxy.metering.test_upkeep import file_sets
from tests.support.metering.metering_rows import PROXY_ID
from tests.support.metering.object_store import Bucket

PROXY = "sluice-1"


def upload(directory: Path, bucket: Bucket, proxy_id: str = PROXY) -> tuple[int, list[str]]:
    """Run one pass; return the number of uploaded file sets, and the problems."""
    sizes: list[int] = []
    problems = Upload(directory, proxy_id, StoreFiles(open_object_store(bucket.url)), sizes.append).run()
    return len(sizes), problems


def of_metering(directory: Path) -> dict[str, bytes]:
    """Return the files that manifests list, and the manifests."""
    found = [path for kind in ("*.parquet", "manifests/**/*.json") for path in directory.rglob(kind)]
    return {str(path.relative_to(directory)): path.read_bytes() for path in found}


def test_the_store_gets_the_same_files_once(tmp_path: Path, bucket: Bucket) -> None:
    """A pass copies all file sets byte for byte, the next one nothing, and validation of the URL has the verdict of the directory."""
    file_sets(tmp_path, 4)
    number = len(find_manifests(tmp_path))
    assert upload(tmp_path, bucket) == (number, [])
    assert bucket.contents() == of_metering(tmp_path)
    assert upload(tmp_path, bucket) == (0, [])
    there, here = validate(path_of(bucket.url)), validate(tmp_path)
    assert there.as_dict(9) == here.as_dict(9)


def puts_that_fail(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Let the store refuse after some files."""
    left, put = iter(range(after)), StoreFiles.put

    def put_some(self: StoreFiles, path: str, data: bytes) -> None:
        if next(left, None) is None:
            raise StoreError("gone")
        put(self, path, data)

    monkeypatch.setattr(StoreFiles, "put", put_some)


@pytest.mark.parametrize("puts", range(0, 14, 2))
def test_an_interrupted_pass_leaves_whole_file_sets(tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, puts: int) -> None:
    """After any number of files, each manifest in the store has all of its files, and the next pass brings the rest."""
    file_sets(tmp_path, 3)
    with monkeypatch.context() as patched:
        puts_that_fail(patched, puts)
        with pytest.raises(StoreError):
            upload(tmp_path, bucket)
    if any(name.startswith("manifests/") for name in bucket.contents()):
        directory = path_of(bucket.url)
        assert [line for one in find_manifests(directory) for line in problems_of(directory, one)] == []
    assert upload(tmp_path, bucket)[1] == []
    assert bucket.contents() == of_metering(tmp_path)


def test_a_damaged_file_stays_here(tmp_path: Path, bucket: Bucket) -> None:
    """A file set with a changed file is named with the remedy and not uploaded; the others are, and it too once it is restored."""
    file_sets(tmp_path, 3)
    first = find_manifests(tmp_path)[0]
    damaged = tmp_path / first.files[0].path
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    uploaded, problems = upload(tmp_path, bucket)
    assert uploaded == len(find_manifests(tmp_path)) - 1
    assert [line.partition(":")[0] for line in problems] == [first.files[0].path]
    assert "restore it" in problems[0]
    assert not any(first.file_set in name for name in bucket.contents())
    damaged.write_bytes(whole)
    assert upload(tmp_path, bucket) == (1, [])


@pytest.mark.parametrize("interrupted_after", [None, 0, 1, 2, 3, 4])
def test_a_forgotten_user_is_forgotten_there_too(
    tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, interrupted_after: int | None
) -> None:
    """After `forget` here, the next passes replace the files in the store, and no file there has the name, also after an interruption."""
    written(tmp_path, "alice", "bob")
    upload(tmp_path, bucket, PROXY_ID)
    assert any(b"alice" in content for content in bucket.contents().values())
    forget_user(tmp_path, "alice")
    if interrupted_after is not None:
        with monkeypatch.context() as patched:
            puts_that_fail(patched, interrupted_after)
            patched.setattr(StoreFiles, "delete", lambda _self, _paths: (_ for _ in ()).throw(StoreError("gone")))
            with pytest.raises(StoreError):
                upload(tmp_path, bucket, PROXY_ID)
    assert upload(tmp_path, bucket, PROXY_ID) == (1, [])
    assert bucket.contents() == of_metering(tmp_path)
    assert not any(b"alice" in content for content in bucket.contents().values())


def test_retention_waits_for_the_upload(tmp_path: Path, bucket: Bucket) -> None:
    """Retention by age and size removes a file set only when the store has it; the store then has the whole run."""
    file_sets(tmp_path, 4)
    whole = of_metering(tmp_path)
    limits = Retention(bytes_max=1, uploads_to=bucket.url)
    assert apply_retention(tmp_path, PROXY, limits) == Removed(0, 0)
    upload(tmp_path, bucket)
    number = len(find_manifests(tmp_path))
    assert apply_retention(tmp_path, PROXY, limits) == Removed(number, 0)
    assert upload(tmp_path, bucket) == (0, [])
    assert bucket.contents() == whole
    verdict = validate(path_of(bucket.url))
    assert (verdict.removed, verdict.incomplete, verdict.kinds()) == ([], [], {})


def test_a_loss_is_named(tmp_path: Path, bucket: Bucket) -> None:
    """Above `local_bytes_max` retention removes file sets that wait, counts them, and the store's ledger tells readers which."""
    file_sets(tmp_path, 4)
    found = find_manifests(tmp_path)
    size = sum(map(len, of_metering(tmp_path).values()))
    removed = apply_retention(tmp_path, PROXY, Retention(uploads_to=bucket.url, local_bytes_max=size // 2))
    assert 0 < removed.file_sets == removed.lost < len(found)
    upload(tmp_path, bucket)
    verdict = validate(path_of(bucket.url))
    assert verdict.removed == [f"run {found[0].run_id}: decisions 0 to {found[removed.lost - 1].last_seq} were removed by retention"]
    assert (verdict.incomplete, verdict.kinds()) == ([], {})


def test_another_url_gets_everything(tmp_path: Path, bucket: Bucket) -> None:
    """The state is of one URL: a new one gets all file sets."""
    file_sets(tmp_path, 2)
    number = upload(tmp_path, bucket)[0]
    sizes: list[int] = []
    Upload(tmp_path, PROXY, StoreFiles(open_object_store(f"s3://{bucket.name}/other")), sizes.append).run()
    assert len(sizes) == number
    before = bucket.contents()
    assert {f"other/{name}": content for name, content in before.items() if not name.startswith("other/")}.items() <= before.items()


def typed(*arguments: object) -> Result:
    command, *others = arguments
    assert command in (upload_command, forget_command)
    return CliRunner().invoke(command, [str(argument) for argument in others])  # type: ignore[arg-type]


def test_the_command_uploads_all_proxies(tmp_path: Path, bucket: Bucket) -> None:
    """`sluice meter upload` copies the file sets of every proxy in a directory, and says how many."""
    file_sets(tmp_path, 2)
    number = len(find_manifests(tmp_path))
    written(tmp_path, "alice")
    done = typed(upload_command, tmp_path, "--to", bucket.url)
    assert (done.exit_code, done.stdout.split(",")[0]) == (0, f"{number + 1} file sets uploaded"), done.output
    assert bucket.contents() == of_metering(tmp_path)
    assert typed(upload_command, tmp_path, "--to", bucket.url).stdout == "0 file sets uploaded, 0 bytes\n"


def test_the_command_names_what_it_cannot_use(tmp_path: Path, bucket: Bucket) -> None:
    """No metering directory, no URL, a bucket that is not there: one line each, exit code 2. A damaged file: exit code 3."""
    nothing = typed(upload_command, tmp_path, "--to", bucket.url)
    file_sets(tmp_path, 1)
    no_url = typed(upload_command, tmp_path, "--to", "somewhere")
    no_bucket = typed(upload_command, tmp_path, "--to", "s3://no-such-bucket/metering")
    for done, words in ((nothing, "not a metering directory"), (no_url, "not a URL"), (no_bucket, "check the URL")):
        assert (done.exit_code, done.stderr.count("\n"), words in done.stderr) == (2, 1, True), done.output
    (tmp_path / find_manifests(tmp_path)[0].files[0].path).write_bytes(b"?")
    damaged = typed(upload_command, tmp_path, "--to", bucket.url)
    assert (damaged.exit_code, "restore it" in damaged.stderr) == (3, True), damaged.output


@pytest.mark.parametrize("interrupted_after", [None, 0, 1, 3])
def test_a_user_is_forgotten_in_a_store(
    tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, interrupted_after: int | None
) -> None:
    """`sluice meter forget URL` does to the files of a store what it does to those of a directory, also when it is repeated."""
    written(tmp_path, "alice", "bob")
    bucket.put(tmp_path)
    if interrupted_after is not None:
        with monkeypatch.context() as patched:
            puts_that_fail(patched, interrupted_after)
            patched.setattr(StoreFiles, "delete", lambda _self, _paths: (_ for _ in ()).throw(StoreError("gone")))
            assert typed(forget_command, bucket.url, "--user", "alice").exit_code == 2
    done = typed(forget_command, bucket.url, "--user", "alice")
    here = typed(forget_command, tmp_path, "--user", "alice")
    assert (done.exit_code, here.exit_code) == (0, 0), done.output
    if interrupted_after is None:
        assert done.stdout == here.stdout
    assert bucket.contents() == of_metering(tmp_path)
    assert not any(b"alice" in content for content in bucket.contents().values())


def test_forget_names_a_place_without_files(bucket: Bucket, tmp_path: Path) -> None:
    """A URL without manifests, and one with a damaged manifest, are one line with the URL, and nothing changes."""
    nothing = typed(forget_command, bucket.url, "--user", "alice")
    assert (nothing.exit_code, "not a metering directory" in nothing.stderr) == (2, True), nothing.output
    written(tmp_path, "alice")
    bucket.put(tmp_path)
    [name] = [name for name in bucket.contents() if name.endswith(".json")]
    bucket.write(f"metering/{name}", b"{")
    before = bucket.contents()
    damaged = typed(forget_command, bucket.url, "--user", "alice")
    assert (damaged.exit_code, damaged.stderr.count("\n")) == (2, 1), damaged.output
    assert damaged.stderr.startswith(f"sluice: {bucket.url}/{name}: not a manifest")
    assert bucket.contents() == before
