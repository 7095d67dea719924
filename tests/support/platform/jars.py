"""Jars that Spark needs for tables, brokers and object stores, in build/jars; Maven fetches those that are missing."""

import subprocess
from pathlib import Path

from tests.support.places import BUILD

JARS = {
    "iceberg": ("org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0", "org.xerial:sqlite-jdbc:3.50.3.0"),
    "delta": ("io.delta:delta-spark_2.13:4.0.1", "io.delta:delta-storage:4.0.1"),
    "kafka": (
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.1",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",  # that of 4.0.1 was not in the mirror of Maven
        "org.apache.kafka:kafka-clients:3.9.1",
        "org.apache.commons:commons-pool2:2.12.0",
    ),
    "s3a": (
        "org.apache.hadoop:hadoop-aws:3.5.0",  # the Hadoop of Spark 4.3
        "software.amazon.awssdk:bundle:2.35.4",
        "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1",
    ),
    "s3a-4.0": ("org.apache.hadoop:hadoop-aws:3.4.1", "software.amazon.awssdk:bundle:2.24.6"),
}
"""Coordinates by name. Those of `s3a` are for the Spark of this project and 690 MB, the others for Spark 4.0.1; `s3a-4.0` has 560 MB."""
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
_HOME = BUILD / "jars"


def jars(*names: str) -> str:
    """Return the paths of the jars, with commas between them, as `spark.jars` has them.

    Args:
        names: keys of `JARS`.
    """
    return ",".join(str(_jar(artifact)) for name in names for artifact in JARS[name])


def s3a_settings(endpoint: str) -> dict[str, str]:
    """Return the settings of Spark for a server at a URL that is no URL of Amazon."""
    return {
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": "eu-west-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }


def _jar(artifact: str) -> Path:
    _, name, version = artifact.split(":")
    jar = _HOME / f"{name}-{version}.jar"
    if not jar.exists():
        options = (f"-Dartifact={artifact}", f"-DoutputDirectory={_HOME}", f"-Dmaven.repo.local={BUILD / 'maven'}")
        subprocess.run(["mvn", "-B", "-q", _COPY, *options], check=True)
    return jar
