"""Kafka's admin client of the session's JVM, for clusters that only Java can log in to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from pyspark.sql import SparkSession

from lakecdc.iceberg.jvm import java_list, jvm, listed


class KafkaAdmin:
    """An open admin client with settings in Java's names; every call may raise py4j's form of its exceptions."""

    def __init__(self, spark: SparkSession, settings: Mapping[str, str]) -> None:
        self._spark = spark
        kafka = jvm(spark).org.apache.kafka
        self._common, self._admin = kafka.common, kafka.clients.admin
        properties = jvm(spark).java.util.HashMap()
        for name, value in settings.items():
            properties.put(name, value)
        level = settings.get("isolation.level", "read_committed").upper()
        self._options = self._admin.ListOffsetsOptions(self._common.IsolationLevel.valueOf(level))
        self._client = self._admin.AdminClient.create(properties)

    def topics(self, is_wanted: Callable[[str], bool]) -> dict[str, tuple[str, int]]:
        """Return id and number of partitions of topics."""
        names = sorted(name for name in map(str, listed(self._client.listTopics().names().get())) if is_wanted(name))
        if not names:
            return {}
        descriptions = self._client.describeTopics(java_list(self._spark, names)).allTopicNames().get()
        described = {name: descriptions.get(name) for name in names}
        return {name: (str(t.topicId().toString()), int(t.partitions().size())) for name, t in described.items()}

    def close(self) -> None:
        """Close the client."""
        self._client.close()

    def offsets(
        self, places: Iterable[tuple[str, int]], at: Literal["earliest", "latest"] | int
    ) -> dict[tuple[str, int], int]:
        """Return an offset of each topic partition.

        :param at: ``earliest``; ``latest`` for the offset after the last one visible to readers; or a time in
            milliseconds since 1970 for the first record that is not older, -1 if there is none.
        """
        offsets = self._admin.OffsetSpec
        spec = offsets.forTimestamp(at) if isinstance(at, int) else getattr(offsets, at)()
        partitions = {place: self._common.TopicPartition(*place) for place in places}
        if not partitions:
            return {}
        request = jvm(self._spark).java.util.HashMap()
        for java in partitions.values():
            request.put(java, spec)
        answer = self._client.listOffsets(request, self._options).all().get()
        return {place: int(answer.get(java).offset()) for place, java in partitions.items()}
