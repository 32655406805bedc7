"""Read Kafka topics from the offsets that the tables keep, without a consumer group."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from lakecdc.contract.errors import InputError
from lakecdc.contract.secrets import resolve
from lakecdc.contract.sources.kafka import KafkaSource
from lakecdc.contract.sources.kafka_java import translated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakecdc.contract.spec import JobSpec
    from lakecdc.ingest.sources.kafka.cluster import Reader
    from lakecdc.ingest.sources.kafka.source import KafkaIngest


def open_source(spark: SparkSession, spec: JobSpec) -> KafkaIngest:
    """Open the Kafka source of an ingest spec; raise an error if its client or a secret is missing."""
    from lakecdc.ingest.sources.kafka.source import KafkaIngest

    assert isinstance(spec.source, KafkaSource)
    return KafkaIngest(spark, spec, open_reader(spark, spec.source))


def source_tables(spark: SparkSession, spec: JobSpec) -> list[str]:
    """Return the topics that the source reads."""
    assert isinstance(spec.source, KafkaSource)
    with closing(open_reader(spark, spec.source)) as reader:
        return list(reader.topics(spec.source.wants))


def open_reader(spark: SparkSession, source: KafkaSource) -> Reader:
    """Open the client of the cluster; see :func:`open_source`."""
    settings, servers = resolve(source.settings, "source.settings"), {"bootstrap.servers": source.bootstrap_servers}
    if source.reader == "spark":
        from lakecdc.ingest.sources.kafka.spark_reader import SparkReader

        more = resolve(source.java_settings, "source.java_settings")
        return SparkReader(spark, {**translated(settings, more), **servers})
    try:
        from lakecdc.ingest.sources.kafka.read import LibrdkafkaReader
    except ImportError as error:
        raise InputError(
            f"The Kafka client cannot be imported: {error}.",
            hint="Install confluent-kafka where driver and executors run (it is in the extra 'spark'), or use Spark's "
            'own client: "reader": "spark".',
        ) from error
    return LibrdkafkaReader(spark, {**settings, **servers})
