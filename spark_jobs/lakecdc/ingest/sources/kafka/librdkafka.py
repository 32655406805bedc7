"""Query a Kafka cluster through librdkafka, and configure its consumers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from lakecdc.contract.errors import InputError, SourceUnavailableError, is_refusal
from lakecdc.contract.secrets import mask
from lakecdc.ingest.sources.kafka.cluster import At, Place, Topic

_SECONDS = 30.0
# Java's client keeps its connections alive by itself
_ALIVE = {"socket.keepalive.enable": True}
# while the leader of a partition changes, or a topic is new
_PASSING = (KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION)


class LibrdkafkaCluster:
    """The admin side of a cluster, by librdkafka.

    :param settings: complete client settings in librdkafka's names, secrets resolved.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = dict(settings)
        self._complaint = ""
        isolation = str(settings.get("isolation.level", "read_committed")).upper()
        self._isolation = IsolationLevel[isolation]
        client: dict[str, Any] = {**_ALIVE, **self.settings, "error_cb": self._complain, "log_level": 0}
        try:
            self._admin = AdminClient(client)
        except KafkaException as error:
            raise InputError(
                f"librdkafka refuses source.settings: {mask(error.args[0].str())}.",
                hint='Correct them, or use "reader": "spark" for settings that only Java\'s client supports.',
            ) from error

    def topics(self, matches: Callable[[str], bool]) -> dict[str, Topic]:
        with self._asking():
            names = sorted(name for name in self._admin.list_topics(timeout=_SECONDS).topics if matches(name))
            if not names:
                return {}
            futures = self._admin.describe_topics(TopicCollection(names), request_timeout=_SECONDS)
            described = [future.result() for future in futures.values()]
        return {t.name: Topic(t.name, _topic_id(t), len(t.partitions)) for t in described}

    def offsets(self, places: Iterable[Place], at: At) -> dict[Place, int]:
        spec = OffsetSpec.for_timestamp(at) if isinstance(at, int) else getattr(OffsetSpec, at)()
        specs = {TopicPartition(*place): spec for place in places}
        if not specs:
            return {}
        with self._asking():
            passing = retry_if_exception(
                lambda error: isinstance(error, KafkaException) and error.args[0].code() in _PASSING
            )
            again = Retrying(retry=passing, stop=stop_after_delay(_SECONDS), wait=wait_fixed(0.5), reraise=True)
            return again(self._list_offsets, specs)

    def _list_offsets(self, specs: dict[TopicPartition, OffsetSpec]) -> dict[Place, int]:
        futures = self._admin.list_offsets(specs, isolation_level=self._isolation, request_timeout=_SECONDS)
        return {(p.topic, p.partition): future.result().offset for p, future in futures.items()}

    def _complain(self, error: object) -> None:
        # a refused login is followed by "all brokers are down"
        if not is_refusal(self._complaint):
            self._complaint = str(error)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Convert the client's exceptions to errors that name the cluster and the client's own complaint."""
        try:
            yield
        except KafkaException as error:
            # only polls deliver complaints
            self._admin.poll(0)
            complaint = self._complaint or str(error)
            raise (InputError if is_refusal(complaint) else SourceUnavailableError)(
                f"Kafka at {self.settings['bootstrap.servers']} cannot be queried: {mask(complaint)}.",
                hint="Check bootstrap_servers and settings; a retry helps only if it was unreachable for a moment.",
            ) from error


def consumer_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a consumer that reads by offsets without a group."""
    return {
        **_ALIVE,
        "isolation.level": "read_committed",
        # bounds the memory of one task beside its rows
        "queued.max.messages.kbytes": 32768,
        # with the default, a full queue costs a whole second
        "fetch.queue.backoff.ms": 10,
        "fetch.wait.max.ms": 100,
        "log_level": 0,
        **settings,
        # the client requires a name; no consumer joins or commits under it
        "group.id": "lakecdc",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        # a missing offset must be an error: otherwise events would be lost silently
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
    }


def _topic_id(described: Any) -> str:
    text = str(described.topic_id or "")
    # brokers without topic ids answer with all zeros
    return "" if set(text) <= set("A-") else text
