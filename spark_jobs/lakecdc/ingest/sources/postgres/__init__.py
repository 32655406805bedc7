"""Read Postgres: full loads from an exported snapshot, then the log of one replication slot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecdc.contract.sources.postgres import PostgresSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakecdc.contract.spec import JobSpec
    from lakecdc.ingest.batch import IngestSource


def open_source(spark: SparkSession, spec: JobSpec) -> IngestSource:
    """Open the source of an ingest spec of type ``postgres``.

    :raises LakecdcError: the driver is missing, or the connection string or the password's reference cannot be used.
    """
    from lakecdc.ingest.sources.database import check_driver

    check_driver("psycopg[binary]")
    from lakecdc.ingest.sources.log.source import LogSource
    from lakecdc.ingest.sources.postgres.log_server import PostgresServer

    return LogSource(spark, spec, PostgresServer(spark, spec))


def source_tables(spark: SparkSession, spec: JobSpec) -> list[str]:
    """List all tables of the database, ``schema.table``; a partitioned table counts, its partitions do not.

    :raises LakecdcError: the database cannot be reached.
    """
    from lakecdc.ingest.sources.postgres.catalog import list_tables
    from lakecdc.ingest.sources.postgres.connect import address, connect

    assert isinstance(spec.source, PostgresSource)
    with connect(address(spec.source)) as session:
        return list_tables(session)
