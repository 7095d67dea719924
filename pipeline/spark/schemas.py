"""Schemas of metering tables in Spark's types; none is inferred."""

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from metering_format.tables import TABLES


def declared(table: str) -> StructType:
    """Return the schema of a metering table. Every column is nullable, since files are not trusted."""
    schema: StructType = from_arrow_schema(TABLES[table])
    for field in schema.fields:
        field.nullable = True
    return schema
