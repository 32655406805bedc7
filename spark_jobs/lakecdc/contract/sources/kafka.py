"""The ``source`` of an ingest spec: Kafka topics."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from lakecdc.contract.errors import SpecError
from lakecdc.contract.fields import check_least
from lakecdc.contract.sources import kafka_java
from lakecdc.contract.sources.formats import (
    KEY_IN_MESSAGE,
    KEY_OF_MESSAGE,
    UNAVAILABLE_VALUE,
    MessageFormat,
    RegistrySettings,
    refuse_keyless,
)
from lakecdc.contract.target import Target

#: client settings that this source decides itself
OWN_SETTINGS = frozenset(
    {
        "bootstrap.servers",
        "group.id",
        "group.instance.id",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "auto.offset.reset",
        "enable.partition.eof",
    }
)


@dataclass(frozen=True)
class KafkaSource:
    """Topics of a Kafka cluster, read by offsets, without a consumer group or committed offsets.

    :param bootstrap_servers: ``host:port``, several separated by commas.
    :param format: format of the messages.
    :param topics: names of topics; use either these or ``topic_pattern``.
    :param topic_pattern: regular expression of whole topic names, including topics that appear later.
    :param routes: by target, a regular expression of the whole names of its topics. Other targets are fed from topics
        that end with their ``source_table``, or whose last part is the table's name; a single target from all
        ``topics``.
    :param settings: client settings in librdkafka's names, such as ``security.protocol`` or ``sasl.mechanism``;
        passwords are secret references.
    :param reader: client: ``librdkafka`` in Python tasks, or ``spark``, Spark's own source with Kafka's Java client.
    :param java_settings: with the reader ``spark``: client settings in Java's names, in addition to those derived from
        ``settings``; passwords are secret references.
    :param start: where a new table begins: ``earliest``, ``latest`` (the table must exist) or an ISO-8601 time with a
        zone, compared with the records' timestamps. Later topics and partitions are read from their beginning.
    :param end_time: ISO-8601 time with a zone to stop at; default: the topics' ends when the run begins.
    :param max_offsets_per_batch: limit of offsets per micro-batch of a table.
    :param max_batch_bytes: limit of its keys and values, estimated from a sample of records; 0 means no limit.
    :param accept_topic_ids: ids of recreated topics to read from their beginning, as changes after everything read
        before.
    :param accept_gaps: continue at the oldest record if retention has removed unread events.
    :param order_by: with ``json``: member that grows with every change of a row; default: order of arrival.
    :param unavailable_value: Debezium's placeholder for unchanged large values.
    :param registry: schema registry, required with ``debezium-avro``.
    """

    bootstrap_servers: str
    format: MessageFormat
    type: Literal["kafka"] = "kafka"
    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    routes: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    reader: Literal["librdkafka", "spark"] = "librdkafka"
    java_settings: dict[str, Any] = field(default_factory=dict)
    start: str = "earliest"
    end_time: str | None = None
    max_offsets_per_batch: int = 1_000_000
    max_batch_bytes: int = 256 * 1024 * 1024
    accept_topic_ids: tuple[str, ...] = ()
    accept_gaps: bool = False
    order_by: str | None = None
    unavailable_value: str = UNAVAILABLE_VALUE
    registry: RegistrySettings | None = None

    def __post_init__(self) -> None:
        if (self.registry is not None) != (self.format == "debezium-avro"):
            raise SpecError(
                f"source.registry is {'missing' if self.registry is None else 'set'}, but the format is "
                f"{self.format!r}.",
                hint="It belongs to the format debezium-avro.",
            )
        if bool(self.topics) == bool(self.topic_pattern):
            raise SpecError("source needs either topics or topic_pattern.")
        for where, pattern in {"topic_pattern": self.topic_pattern, **self.routes}.items():
            _check_pattern(where, pattern)
        _check_settings(self.settings, "settings", OWN_SETTINGS)
        _check_settings(self.java_settings, "java_settings", OWN_SETTINGS | kafka_java.OWN_SETTINGS)
        self._check_reader()
        if self.start not in ("earliest", "latest"):
            moment(self.start, "source.start")
        if self.end_time is not None:
            moment(self.end_time, "source.end_time")
        check_least(self, "source", max_offsets_per_batch=1, max_batch_bytes=0)

    def _check_reader(self) -> None:
        if self.reader == "spark":
            unknown = kafka_java.unknown(self.settings)
            if unknown:
                raise SpecError(
                    f"source.settings has {unknown[0]!r}, which has no known equivalent in Java's client.",
                    hint="Remove it, and set what Java's client needs instead in source.java_settings.",
                )
        elif self.java_settings:
            raise SpecError("source.java_settings is set, but the reader is librdkafka.", hint='Set "reader": "spark".')

    def check_targets(self, targets: tuple[Target, ...]) -> None:
        """Raise a :class:`SpecError` if a target lacks a key that it needs, or a route has no target."""
        for name in self.routes:
            if name not in {target.table for target in targets}:
                raise SpecError(f"source.routes names {name!r}, which is not a target.")
        if self.format not in (*KEY_OF_MESSAGE, *KEY_IN_MESSAGE):
            refuse_keyless(targets, "messages", self.format)

    def reads(self, topic: str) -> bool:
        return topic in self.topics or bool(self.topic_pattern and re.fullmatch(self.topic_pattern, topic))

    def topics_of(self, target: Target, topics: Sequence[str], *, single: bool) -> list[str]:
        """Return the topics that feed a target, among those that are read; ``single``: it is the only target."""
        if target.table in self.routes:
            return [topic for topic in topics if re.fullmatch(self.routes[target.table], topic)]
        if target.source_tables:
            return [topic for topic in topics if target.matches(topic)]
        if single and self.topics:
            return list(topics)
        return [topic for topic in topics if f".{topic}".endswith(f".{target.source_name}")]


def moment(text: str, where: str) -> datetime:
    """Parse a time with its zone; raise a :class:`SpecError` for others, such as a missing Airflow interval."""
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        parsed = None
    if parsed is None or parsed.tzinfo is None:
        raise SpecError(
            f"{where} is {text!r}.",
            hint="Use a time such as 2026-01-31T00:00:00+00:00. Without a data interval, templates of it are empty.",
        )
    return parsed


def _check_pattern(where: str, pattern: str | None) -> None:
    try:
        re.compile(pattern or "")
    except re.error as error:
        raise SpecError(f"The regular expression of source.{where} is wrong: {error}.") from error


def _check_settings(settings: Mapping[str, Any], where: str, own: Container[str]) -> None:
    for name in settings:
        if name in own:
            raise SpecError(f"source.{where} has {name!r}, which the source sets itself.", hint="Remove it.")
