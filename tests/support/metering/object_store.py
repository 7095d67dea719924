"""An S3 server in this process, on loopback, and a bucket of its own for each test."""

import contextlib
import itertools
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer
from pyarrow import fs

ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "eu-west-1"}
_NUMBERS = itertools.count()


@dataclass(frozen=True)
class Bucket:
    """A bucket with the file system that reaches it."""

    name: str
    files: fs.FileSystem

    @property
    def url(self) -> str:
        """The URL of a directory in it."""
        return f"s3://{self.name}/metering"

    def put(self, directory: Path) -> None:
        """Copy a local directory into that directory."""
        fs.copy_files(str(directory), f"{self.name}/metering", destination_filesystem=self.files)

    def get(self, path: str, directory: Path) -> None:
        """Copy the files of a path below the bucket to a local directory."""
        fs.copy_files(f"{self.name}/{path}", str(directory), source_filesystem=self.files)

    def write(self, path: str, data: bytes) -> None:
        """Write one file; the path is below the bucket."""
        with self.files.open_output_stream(f"{self.name}/{path}") as file:
            file.write(data)

    def read(self, path: str) -> bytes:
        """Return one file; the path is below the bucket."""
        with self.files.open_input_stream(f"{self.name}/{path}") as file:
            return bytes(file.read())

    def contents(self) -> dict[str, bytes]:
        """Return all files by their path below the directory."""
        found = self.files.get_file_info(fs.FileSelector(self.name, recursive=True))
        names = sorted(info.path.removeprefix(f"{self.name}/") for info in found if info.is_file)
        return {name.removeprefix("metering/"): self.read(name) for name in names}


@contextlib.contextmanager
def s3_server() -> Iterator[str]:
    """Run the server for a block; yield its URL."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()


def new_bucket(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> Bucket:
    """Make an empty bucket, and let this process and its children find the server as users do: by variables of the environment."""
    for name, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL": endpoint}.items():
        monkeypatch.setenv(name, value)
    name = f"bucket-{next(_NUMBERS)}"
    files, _ = fs.FileSystem.from_uri(f"s3://{name}?allow_bucket_creation=true")
    files.create_dir(name)
    return Bucket(name, files)
