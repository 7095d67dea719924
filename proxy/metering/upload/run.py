"""The child process that uploads: `python -m proxy.metering.upload.run DIR`, with an order as JSON on stdin.

Each line on stdout is JSON: `{"bytes": N}` for an uploaded file set, and last `{"waiting": N, "problem": TEXT or null}`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from proxy.metering.upload.file_sets import Upload
from proxy.metering.upload.store_files import StoreError, StoreFiles
from sluice.object_store import ObjectStoreError, open_object_store

NICENESS: Final = 10


def main(arguments: Sequence[str]) -> None:
    """Upload the file sets of one proxy. The order has `url` and `proxy_id`."""
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    order = msgspec.json.decode(sys.stdin.buffer.read())
    waiting, problem = 0, None
    try:
        store = StoreFiles(open_object_store(order["url"]))
        upload = Upload(Path(arguments[0]), order["proxy_id"], store, lambda size: _tell({"bytes": size}))
        try:
            problem = next(iter(upload.run()), None)
        except StoreError as error:
            problem = str(error)
        waiting = upload.waiting
    except (ObjectStoreError, OSError) as error:
        problem = " ".join(str(error).split())
    _tell({"waiting": waiting, "problem": problem})


def _tell(fields: dict[str, Any]) -> None:
    sys.stdout.write(msgspec.json.encode(fields).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
