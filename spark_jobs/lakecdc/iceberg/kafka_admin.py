"""Kafka's admin client of the session's JVM, for clusters that only Java can log in to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from lakecdc.iceberg.jvm import java_list, jvm, listed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class KafkaAdmin:
    """An open admin client; every call may raise what py4j makes of the client's exceptions.

    :param settings: client settings in Java's names, secrets resolved.
    """

    def __init__(self, spark: SparkSession, settings: Mapping[str, str]) -> None:
        self._spark = spark
        kafka = jvm(spark).org.apache.kafka
        self._common, self._admin = kafka.common, kafka.clients.admin
        properties = jvm(spark).java.util.HashMap()
        for name, value in settings.items():
            properties.put(name, value)
        level = settings.get("isolation.level", "read_committed").upper()
        self._options = self._admin.ListOffsetsOptions(self._common.IsolationLevel.valueOf(level))
        self._places: dict[tuple[str, int], Any] = {}
        self._client = self._admin.AdminClient.create(properties)

    def topics(self, wanted: Callable[[str], bool]) -> dict[str, tuple[str, int]]:
        """Id and number of partitions of topics."""
        names = sorted(name for name in map(str, listed(self._client.listTopics().names().get())) if wanted(name))
        if not names:
            return {}
        found = self._client.describeTopics(java_list(self._spark, names)).allTopicNames().get()
        described = {name: found.get(name) for name in names}
        return {name: (str(t.topicId().toString()), int(t.partitions().size())) for name, t in described.items()}

    def earliest(self, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """The lowest offset of topics' partitions."""
        return self._offsets(places, self._admin.OffsetSpec.earliest())

    def latest(self, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """The offset behind the last one that a reader may see."""
        return self._offsets(places, self._admin.OffsetSpec.latest())

    def at(self, places: Iterable[tuple[str, int]], milliseconds: int) -> dict[tuple[str, int], int]:
        """The first offset whose record is not older than a moment, -1 where there is none.

        :param milliseconds: since 1970.
        """
        return self._offsets(places, self._admin.OffsetSpec.forTimestamp(milliseconds))

    def close(self) -> None:
        """Close the client."""
        self._client.close()

    def _offsets(self, places: Iterable[tuple[str, int]], spec: Any) -> dict[tuple[str, int], int]:
        asked = {place: self._place(place) for place in places}
        if not asked:
            return {}
        wanted = jvm(self._spark).java.util.HashMap()
        for java in asked.values():
            wanted.put(java, spec)
        found = self._client.listOffsets(wanted, self._options).all().get()
        return {place: int(found.get(java).offset()) for place, java in asked.items()}

    def _place(self, place: tuple[str, int]) -> Any:
        if place not in self._places:
            self._places[place] = self._common.TopicPartition(*place)
        return self._places[place]
