"""The ``source`` of an ingest spec: Kafka topics."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from lakecdc.contract.errors import SpecError
from lakecdc.contract.sources import kafka_java
from lakecdc.contract.sources.formats import (
    KEY_IN_MESSAGE,
    KEY_OF_MESSAGE,
    UNAVAILABLE_VALUE,
    MessageFormat,
    RegistrySettings,
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
    """Topics of a Kafka cluster, read by offsets; no consumer group is joined and no offset is committed to Kafka.

    :param bootstrap_servers: ``host:port``, several separated by commas.
    :param format: name of the event format.
    :param topics: names of topics; give these or ``topic_pattern``.
    :param topic_pattern: regular expression of whole topic names; topics that appear later are picked up.
    :param routes: which topics feed a target: regular expression of whole topic names by the target's name. Other
        targets take the topics that end with their ``source_table``, or whose last part is the table's own name; a
        single target takes all ``topics``.
    :param settings: client settings in librdkafka's names, such as ``security.protocol`` or ``sasl.mechanism``;
        passwords are secret references.
    :param reader: what asks the cluster and reads it: ``librdkafka`` inside Python, or ``spark``, Spark's own source
        with Kafka's Java client.
    :param java_settings: with the reader ``spark``: client settings in Java's names, on top of those that follow from
        ``settings``; passwords are secret references.
    :param start: where a table begins that was never fed: ``earliest``, ``latest`` (the table must exist) or a moment
        in ISO-8601 with a zone, compared with the records' timestamps. Later topics and partitions begin at their
        beginning.
    :param end_time: moment to stop at, ISO-8601 with a zone; default: the topics' ends when the run begins.
    :param max_offsets_per_batch: bound on the offsets of one table's micro-batch.
    :param max_batch_bytes: bound on its keys and values, estimated from records that are looked at; 0 is no bound.
    :param accept_topic_ids: ids of topics made anew that may be read from their beginning, as changes that come after
        everything read before.
    :param accept_gaps: go on at the oldest record where retention has removed events that were not read.
    :param order_by: with ``json``: the member that rises with every change of a row; default: arrival decides.
    :param unavailable_value: the placeholder that Debezium is configured to write for unchanged large values.
    :param registry: where the schemas are, required with ``debezium-avro``.
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
                f"source.registry is {'missing' if self.registry is None else 'set'}, and the format is "
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
        for name, least in (("max_offsets_per_batch", 1), ("max_batch_bytes", 0)):
            if getattr(self, name) < least:
                raise SpecError(f"source.{name} is {getattr(self, name)}.", hint=f"It must be at least {least}.")

    def _check_reader(self) -> None:
        if self.reader == "spark":
            unknown = kafka_java.unknown(self.settings)
            if unknown:
                raise SpecError(
                    f"source.settings has {unknown[0]!r}, and what that is in Java's client is not known.",
                    hint="Leave it out, and give what Java's client needs instead in source.java_settings.",
                )
        elif self.java_settings:
            raise SpecError("source.java_settings is set, and the reader is librdkafka.", hint='Set "reader": "spark".')

    def check_targets(self, targets: tuple[Target, ...]) -> None:
        """Refuse targets that topics cannot feed.

        :raises SpecError: a target without a key that needs one, or a route to no target.
        """
        for name in self.routes:
            if name not in {target.table for target in targets}:
                raise SpecError(f"source.routes names {name!r}, which is no target.")
        for target in targets:
            if target.keyed and not target.key and self.format not in (*KEY_OF_MESSAGE, *KEY_IN_MESSAGE):
                raise SpecError(
                    f"No key is given, and messages of format {self.format!r} do not tell one.",
                    table=target.table,
                    hint='Add "key": ["column", …] to its target.',
                )

    def wants(self, topic: str) -> bool:
        """Tell whether the topic is among those to be read."""
        return topic in self.topics or bool(self.topic_pattern and re.fullmatch(self.topic_pattern, topic))

    def topics_of(self, target: Target, topics: Sequence[str], *, single: bool) -> list[str]:
        """Return the topics that feed a target.

        :param topics: topics that the source wants and that exist.
        :param single: it is the spec's only target.
        """
        if target.table in self.routes:
            return [topic for topic in topics if re.fullmatch(self.routes[target.table], topic)]
        if target.source_tables:
            return [topic for topic in topics if target.wants(topic)]
        if single and self.topics:
            return list(topics)
        return [topic for topic in topics if f".{topic}".endswith(f".{target.source_name}")]


def moment(text: str, where: str) -> datetime:
    """Read a moment with its zone.

    :raises SpecError: anything else; an Airflow interval that is not there becomes an empty text or ``None``.
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise SpecError(
            f"{where} is {text!r}.",
            hint="Give a moment such as 2026-01-31T00:00:00+00:00. Runs without a data interval have none to template.",
        )
    return found


def _check_pattern(where: str, pattern: str | None) -> None:
    try:
        re.compile(pattern or "")
    except re.error as error:
        raise SpecError(f"The regular expression of source.{where} is wrong: {error}.") from error


def _check_settings(settings: Mapping[str, Any], where: str, own: Container[str]) -> None:
    for name in settings:
        if name in own:
            raise SpecError(f"source.{where} has {name!r}, which the source sets itself.", hint="Leave it out.")
