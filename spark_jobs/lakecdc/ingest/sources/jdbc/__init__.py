"""Read tables of a database with queries by a cursor column."""

from __future__ import annotations

from pyspark.sql import SparkSession

from lakecdc.contract.sources.jdbc import JdbcSource
from lakecdc.contract.spec import JobSpec
from lakecdc.ingest.sources.jdbc.source import Jdbc


def open_source(spark: SparkSession, spec: JobSpec) -> Jdbc:
    assert isinstance(spec.source, JdbcSource)
    return Jdbc(spark, spec, spec.source)
