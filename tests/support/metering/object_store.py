"""An S3 server in this process, on loopback, and a bucket of its own for each test."""

import contextlib
import itertools
import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from moto.moto_server.werkzeug_app import MotoRequestHandler, create_backend_app
from pyarrow import fs
from werkzeug.serving import make_server

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
    """Run the server for a block; yield its URL.

    It serves S3 alone: the server that moto starts lists its folder of services twice in each request, a third of the time of a GET.
    """
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, create_backend_app("s3"), threaded=True, request_handler=MotoRequestHandler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def new_bucket(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> Bucket:
    """Make an empty bucket, and let this process and its children find the server as users do: by variables of the environment."""
    for name, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL": endpoint}.items():
        monkeypatch.setenv(name, value)
    name = f"bucket-{next(_NUMBERS)}"
    files, _ = fs.FileSystem.from_uri(f"s3://{name}?allow_bucket_creation=true")
    files.create_dir(name)
    return Bucket(name, files)
