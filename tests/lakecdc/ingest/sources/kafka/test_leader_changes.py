"""Offsets of a partition whose leader changes are requested again; one broker has no such change, so it is faked."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from lakecdc.contract.errors import SourceUnavailableError
from lakecdc.ingest.sources.kafka import librdkafka


class Answers:
    """An admin client with prepared answers.

    :param errors: codes of its first answers.
    """

    def __init__(self, *errors: int) -> None:
        self.errors = list(errors)

    def list_offsets(self, partitions: dict[TopicPartition, Any], **_: Any) -> dict[TopicPartition, Future[Any]]:
        answer: Future[Any] = Future()
        if self.errors:
            answer.set_exception(KafkaException(KafkaError(self.errors.pop(0))))
        else:
            answer.set_result(SimpleNamespace(offset=7))
        return dict.fromkeys(partitions, answer)

    def poll(self, timeout: float) -> int:
        """Handle no event: a client that answers reports none."""
        return 0


def cluster_with(answers: Answers) -> librdkafka.LibrdkafkaCluster:
    cluster = librdkafka.LibrdkafkaCluster({"bootstrap.servers": "127.0.0.1:1"})
    cluster._admin = answers  # type: ignore[assignment]
    return cluster


def test_a_leader_change_is_awaited() -> None:
    cluster = cluster_with(Answers(KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE))
    assert cluster.offsets([("t", 0)], "latest") == {("t", 0): 7}


def test_other_errors_are_raised_at_once() -> None:
    answers = Answers(KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(SourceUnavailableError, match="cannot be queried"):
        cluster_with(answers).offsets([("t", 0)], "latest")
    assert len(answers.errors) == 1
