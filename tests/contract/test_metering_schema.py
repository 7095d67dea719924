"""The metering files are a contract: the writer's schemas and the pipeline's are declared apart and are equal."""

from pipeline import schemas
from proxy.metering import schema


def test_both_ends_declare_the_same() -> None:
    """Every table, column, type and nullability that is written is the one that is read, under the same version."""
    assert schema.TABLES == schemas.TABLES
    assert (schema.SCHEMA_VERSION, schema.KIND) == (schemas.SCHEMA_VERSION, schemas.KIND)
