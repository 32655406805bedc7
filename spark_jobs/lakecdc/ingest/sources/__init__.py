"""Read changes from sources, one package or module per type."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakecdc.contract.spec import JobSpec
    from lakecdc.ingest.batch import IngestSource


def open_source(spark: SparkSession, spec: JobSpec) -> IngestSource:
    """Open the source of an ingest spec; its package is imported now, so that its driver is needed only if used."""
    assert spec.source is not None
    name = "quarantine" if spec.job == "replay_quarantine" else spec.source.type
    found: IngestSource = import_module(f"{__name__}.{name}").open_source(spark, spec)
    return found
