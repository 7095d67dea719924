"""Runs statements on DuckDB with its extensions for tables; `duckdb_15` says by which Python.

`python duckdb_statements.py EXTENSION... < STATEMENTS` reads a list of statements as JSON, and prints as JSON the rows of each.
"""

import json
import sys
from pathlib import Path

import duckdb


def main() -> None:
    """Load the extensions from their packages: DuckDB itself would download them."""
    packages = Path(duckdb.__file__).parents[1]
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as engine:
        for name in sys.argv[1:]:
            (file,) = packages.glob(f"duckdb_extension_{name}/extensions/*/{name}.duckdb_extension")
            engine.execute(f"LOAD '{file}'")
        answers = [engine.execute(statement).fetchall() for statement in json.load(sys.stdin)]
    print(json.dumps(answers, default=str))


if __name__ == "__main__":
    main()
