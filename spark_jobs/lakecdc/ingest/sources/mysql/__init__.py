"""Read MySQL and MariaDB: full loads by ranges of keys, then the binary log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecdc.contract.sources.mysql import MysqlSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakecdc.contract.spec import JobSpec
    from lakecdc.ingest.batch import IngestSource


def open_source(spark: SparkSession, spec: JobSpec) -> IngestSource:
    """Open the source of an ingest spec of type ``mysql``.

    :raises LakecdcError: the driver is missing, or the password's reference leads nowhere.
    """
    from lakecdc.ingest.sources.database import check_driver

    check_driver("pymysql")
    from lakecdc.ingest.sources.log.source import LogSource
    from lakecdc.ingest.sources.mysql.log_server import MysqlServer

    return LogSource(spark, spec, MysqlServer(spark, spec))


def source_tables(spark: SparkSession, spec: JobSpec) -> list[str]:
    """List all tables that the user may see, ``database.table``.

    :raises LakecdcError: the server cannot be reached.
    """
    from lakecdc.ingest.sources.mysql.catalog import list_tables
    from lakecdc.ingest.sources.mysql.connect import address, connect

    assert isinstance(spec.source, MysqlSource)
    with connect(address(spec.source)) as session:
        return list_tables(session)
