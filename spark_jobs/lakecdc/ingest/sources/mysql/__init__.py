"""Read MySQL and MariaDB: full loads by ranges of keys, then the binary log."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from lakecdc.contract.errors import InputError
from lakecdc.contract.sources.mysql import MysqlSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakecdc.contract.spec import JobSpec
    from lakecdc.ingest.batch import IngestSource


def check_driver() -> None:
    """Refuse to go on without the driver.

    :raises InputError: its package is missing.
    """
    if importlib.util.find_spec("pymysql") is None:
        raise InputError(
            "The Python package pymysql is missing, on the driver at least.",
            hint='Install "pymysql" where driver and executors run, or ship it in an environment archive.',
        )


def open_source(spark: SparkSession, spec: JobSpec) -> IngestSource:
    """Open the source of an ingest spec whose source is of type ``mysql``.

    :raises LakecdcError: if the driver's package is missing, or the password's reference leads nowhere.
    """
    check_driver()
    from lakecdc.ingest.sources.log.source import LogSource
    from lakecdc.ingest.sources.mysql.log_server import MysqlServer

    return LogSource(spark, spec, MysqlServer(spark, spec))


def source_tables(spark: SparkSession, spec: JobSpec) -> list[str]:
    """All tables that the user may see, ``database.table``.

    :raises LakecdcError: if the server cannot be reached.
    """
    from lakecdc.ingest.sources.mysql.catalog import list_tables
    from lakecdc.ingest.sources.mysql.connect import address, connect

    assert isinstance(spec.source, MysqlSource)
    with connect(address(spec.source)) as session:
        return list_tables(session)
