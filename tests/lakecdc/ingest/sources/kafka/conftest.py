"""A real Kafka for the tests of this folder, and topics with the history of a shop."""

from __future__ import annotations

import itertools
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import Producer, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import parse_spec
from lakecdc.ingest.job import ingest
from lakecdc.runtime.run import run
from local_services.kafka import Kafka
from tests.conftest import Lake

Event = dict[str, Any]
PASSWORD = "open sesame"
COLUMNS = "id, name, n, doc"


@dataclass
class Topics:
    """A Kafka and a lake.

    :param number: distinguishes the topics of this test.
    :param reader: of the source.
    """

    kafka: Kafka
    lake: Lake
    number: int
    targets: list[dict[str, Any]] = field(default_factory=list)
    reader: str = "librdkafka"

    def __post_init__(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap_servers})

    def topic(self, stem: str = "shop.t") -> str:
        """Return the name of a topic of this test."""
        return f"pg{self.number}.{stem}"

    def create(self, topic: str, partitions: int = 1, **config: str) -> None:
        """Create a topic."""
        settings = {key.replace("_", "."): value for key, value in config.items()}
        self.admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(30)

    def delete(self, topic: str) -> None:
        """Delete a topic and wait until the cluster no longer lists it."""
        self.admin.delete_topics([topic])[topic].result(30)
        while topic in self.admin.list_topics(timeout=10).topics:
            pass

    def grow(self, topic: str, partitions: int) -> None:
        """Add partitions."""
        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)

    def admin_id(self, topic: str) -> str:
        """Return the topic's id from the cluster."""
        (description,) = self.admin.describe_topics(TopicCollection([topic])).values()
        return str(description.result(30).topic_id)

    def produce(
        self,
        topic: str,
        events: Iterable[Event],
        partitions: int = 1,
        times: Sequence[int] | None = None,
        producer: Producer | None = None,
    ) -> None:
        """Produce events in their order, partitioned by their key as a connector does; deletes get a tombstone.

        :param times: the records' timestamps, milliseconds since 1970; default: the source's.
        :param producer: of a transaction that has begun; default: one without.
        """
        producer = producer or Producer({"bootstrap.servers": self.kafka.bootstrap_servers, "linger.ms": 5})
        for number, event in enumerate(events):
            key = None if event["key"] is None else json.dumps(event["key"]).encode()
            partition = zlib.crc32(key or b"") % partitions
            headers: list[tuple[str, str | bytes | None]] = [(name, v.encode()) for name, v in event["headers"]]
            moment = times[number] if times else event["value"]["source"]["ts_ms"]
            value = json.dumps(event["value"]).encode()
            producer.produce(topic, value, key, partition, timestamp=moment, headers=headers)
            if event["value"]["op"] == "d":
                # of the same time: batches are cut at one time of all partitions
                producer.produce(topic, None, key, partition, timestamp=moment)
        assert producer.flush(60) == 0

    def spec(self, targets: Sequence[dict[str, Any]] | dict[str, Any], **source: Any) -> dict[str, Any]:
        """Return an ingest spec."""
        options = source.pop("options", {})
        document = {"type": "kafka", "bootstrap_servers": self.kafka.bootstrap_servers, "format": "debezium-json"}
        document["reader"] = self.reader
        return self.lake.spec("ingest", source={**document, **source}, target=targets, options=options)

    def ingest(self, targets: Sequence[dict[str, Any]] | dict[str, Any], **source: Any) -> list[TableReport]:
        """Run the job in this process."""
        report = run(parse_spec(self.spec(targets, **source)), ingest)
        assert not report.error, report.error
        return list(report.tables)

    def rows(self, table: str, columns: str = COLUMNS) -> list[tuple[Any, ...]]:
        """Return the table's rows, read by DuckDB and sorted by key."""
        return sorted(self.lake.duckdb_rows(table, columns), key=lambda row: row[0])


@pytest.fixture(scope="package")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """Start a Kafka node."""
    with Kafka(tmp_path_factory.mktemp("kafka"), password=PASSWORD) as server:
        yield server


_numbers = itertools.count()


@pytest.fixture
def topics(kafka: Kafka, lake: Lake) -> Topics:
    """Return the topics of one test."""
    return Topics(kafka, lake, next(_numbers))
