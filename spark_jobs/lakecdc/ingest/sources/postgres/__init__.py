"""Postgres read directly: full loads from an exported snapshot, then the log of one slot through ``pgoutput``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakecdc.contract.spec import JobSpec
    from lakecdc.ingest.change import IngestSource


def open_source(spark: SparkSession, spec: JobSpec) -> IngestSource:
    """The source of an ingest spec whose source is of type ``postgres``.

    :raises LakecdcError: if the connection string or the password's reference cannot be used.
    """
    from lakecdc.ingest.sources.postgres.source import PostgresIngest

    return PostgresIngest(spark, spec)
