"""Read topics by Spark's own Kafka source, whose Java client logs in where librdkafka cannot.

Driver and executors need its jar and no Python package. Tasks that decode in Python get its messages from Spark.
"""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession

from lakecdc.contract.errors import InputError, SourceUnavailableError
from lakecdc.contract.runtime import KAFKA_READER
from lakecdc.contract.secrets import mask
from lakecdc.iceberg.explain import explain
from lakecdc.iceberg.jvm import has_class, hush
from lakecdc.iceberg.kafka_admin import KafkaAdmin
from lakecdc.ingest.sources.kafka.cluster import SAMPLE, At, Place, Range, Record, Topic, split

_PROVIDER = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
_MILLISECONDS = 30_000
# the message frame; kind -1 is a record without a time
_COLUMNS = (
    "topic",
    "partition",
    "offset",
    "CASE WHEN timestampType >= 0 THEN timestamp END AS timestamp",
    "key",
    "value",
    "headers",
    "offset AS arrival",
    "concat(topic, '/', partition, '@', offset) AS place",
)


class SparkReader:
    """Client that uses Spark's Kafka source.

    :param settings: client settings in Java's names with ``bootstrap.servers``, secrets resolved; they are part of the
        tasks, not of Spark's configuration, and no plan shows them.
    :raises InputError: the jar is missing.
    :raises SourceUnavailableError: Java's client refuses the settings.
    """

    def __init__(self, spark: SparkSession, settings: Mapping[str, str]) -> None:
        if not has_class(spark, _PROVIDER):
            raise InputError(
                "The reader 'spark' needs Spark's Kafka source, which is not among the session's jars.",
                hint=f"Add the package {KAFKA_READER} to the session, or use the reader 'librdkafka'.",
            )
        # it warns at every read that its consumer group may be shared
        hush(spark, _PROVIDER)
        self._spark = spark
        own = {
            # the next batches of a run reuse its consumers
            "group.id": f"lakecdc-{uuid.uuid4()}",
            "isolation.level": "read_committed",
            # how long a task waits at the end of a partition whose last records are aborted
            "fetch.max.wait.ms": "100",
        }
        self._settings = {**own, **settings}
        self._servers = settings["bootstrap.servers"]
        patience = dict.fromkeys(("default.api.timeout.ms", "request.timeout.ms"), str(_MILLISECONDS))
        with self._asking():
            self._admin = KafkaAdmin(spark, {**patience, **settings})

    def topics(self, matches: Callable[[str], bool]) -> dict[str, Topic]:
        with self._asking():
            described = self._admin.topics(matches)
        return {name: Topic(name, _topic_id(text), partitions) for name, (text, partitions) in described.items()}

    def offsets(self, places: Iterable[Place], at: At) -> dict[Place, int]:
        with self._asking():
            return self._admin.offsets(places, at)

    def messages(self, ranges: Sequence[Range]) -> DataFrame:
        return self._load(ranges, len(split(ranges, self._spark.sparkContext.defaultParallelism)))

    def scan(self, ranges: Sequence[Range]) -> None:
        """Return None: Python tasks cannot read directly."""

    def sample(self, ranges: Sequence[Range]) -> list[Record]:
        if not ranges:
            return []
        share = -(-SAMPLE // len(ranges))
        first = [Range(r.topic, r.partition, r.start, min(r.end, r.start + share)) for r in ranges]
        rows = self._load(first, len(first)).select("key", "value", "headers").collect()
        return [(_bytes(r[0]), _bytes(r[1]), r[2] and [(h.key, _bytes(h.value)) for h in r[2]]) for r in rows]

    def close(self) -> None:
        self._admin.close()

    def _load(self, ranges: Sequence[Range], tasks: int) -> DataFrame:
        reader = self._spark.read.format("kafka")
        starts, ends = defaultdict[str, dict[str, int]](dict), defaultdict[str, dict[str, int]](dict)
        for each in ranges:
            starts[each.topic][str(each.partition)] = each.start
            ends[each.topic][str(each.partition)] = each.end
        options = {
            "assign": json.dumps({topic: [int(p) for p in offsets] for topic, offsets in starts.items()}),
            "startingOffsets": json.dumps(starts),
            "endingOffsets": json.dumps(ends),
            "minPartitions": str(tasks),
            "includeHeaders": "true",
            # a missing offset must be an error: otherwise events would be lost silently
            "failOnDataLoss": "true",
        }
        settings = {f"kafka.{name}": value for name, value in self._settings.items()}
        return reader.options(**settings, **options).load().selectExpr(*_COLUMNS)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            cause = explain(error)
            if cause is None:
                raise
            raise (InputError if cause.refused else SourceUnavailableError)(
                f"Kafka at {self._servers} cannot be queried: {mask(cause.text)}.",
                hint="Check bootstrap_servers, settings and java_settings; a retry helps only if it was unreachable "
                "for a moment.",
            ) from error


def _topic_id(text: str) -> str:
    """Return a topic's id in plain base64 as librdkafka does, not in URL-safe base64; an unknown id is all zeros."""
    return "" if set(text) <= {"A"} else text.replace("-", "+").replace("_", "/")


def _bytes(cell: bytearray | None) -> bytes | None:
    return None if cell is None else bytes(cell)
