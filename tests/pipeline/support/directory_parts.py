"""Adds tables to an existing metering directory."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from metering_format.tables import TABLES
from pipeline.manifest import file_sha256


def add_table(directory: Path, name: str, rows: list[dict[str, Any]]) -> None:
    """Give every file set these rows of a table in place of its own."""
    for path in (directory / "manifests").rglob("*.json"):
        manifest = json.loads(path.read_text())
        place = path.parent.relative_to(directory / "manifests")
        file = directory / name / place / f"{path.stem}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        ours = {"run_id": manifest["run_id"], "proxy_id": manifest["proxy_id"]}
        pq.write_table(pa.Table.from_pylist([{**row, **ours} for row in rows], schema=TABLES[name]), file)
        reported = {"rows": len(rows), "bytes": file.stat().st_size, "sha256": file_sha256(file)}
        others = [entry for entry in manifest["files"] if entry["table"] != name]
        manifest["files"] = [*others, {"table": name, "path": str(file.relative_to(directory)), **reported}]
        path.write_text(json.dumps(manifest))
