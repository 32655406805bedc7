"""Read changes from sources, one package or module per type."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakecdc.contract.spec import JobSpec
    from lakecdc.ingest.batch import IngestSource

_MODULES = {
    "jdbc": "jdbc.source",
    "kafka": "kafka.source",
    "mysql": "mysql.log_server",
    "postgres": "postgres.log_server",
}


def source_module(name: str) -> ModuleType:
    """Import the module of a source type lazily, so that its driver is needed only if used."""
    return import_module(f"{__name__}.{_MODULES.get(name, name)}")


def open_source(spark: SparkSession, spec: JobSpec) -> IngestSource:
    """Open the source of an ingest spec."""
    assert spec.source is not None
    source: IngestSource = source_module(
        "quarantine" if spec.job == "replay_quarantine" else spec.source.type
    ).open_source(spark, spec)
    return source
