"""Kafka topics as an ingest source, read by offsets that the tables keep; no consumer group is joined."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecdc.contract.errors import InputError
from lakecdc.contract.secrets import resolve
from lakecdc.contract.sources.kafka import KafkaSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakecdc.contract.spec import JobSpec
    from lakecdc.ingest.sources.kafka.source import KafkaIngest


def open_source(spark: SparkSession, spec: JobSpec) -> KafkaIngest:
    """Open the Kafka source of an ingest spec.

    :raises InputError: if the client library is missing.
    :raises SpecError: if a secret reference cannot be resolved.
    """
    assert isinstance(spec.source, KafkaSource)
    try:
        from lakecdc.ingest.sources.kafka.source import KafkaIngest
    except ImportError as error:
        raise InputError(
            f"The Kafka client cannot be imported: {error}.",
            hint="Install confluent-kafka where driver and executors run (it is in the extra 'spark').",
        ) from error
    return KafkaIngest(spark, spec, _settings(spec.source))


def source_tables(spark: SparkSession, spec: JobSpec) -> list[str]:
    """The topics that the source wants.

    :raises LakecdcError: if the cluster does not answer.
    """
    from lakecdc.ingest.sources.kafka.cluster import Cluster

    assert isinstance(spec.source, KafkaSource)
    return list(Cluster(_settings(spec.source)).topics(spec.source.wants))


def _settings(source: KafkaSource) -> dict[str, str]:
    return {**resolve(source.settings, "source.settings"), "bootstrap.servers": source.bootstrap_servers}
