"""Connections to a cluster that goes away without a word are noticed."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

import pytest
from confluent_kafka import Consumer, KafkaException

from lakecdc.ingest.sources.kafka.librdkafka import LibrdkafkaCluster, consumer_settings


def kept_alive(port: int) -> set[bool]:
    """Whether this process' connections to a port of this machine are kept alive."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError), socket.socket(fileno=os.dup(int(name))) as each:
            if each.getpeername()[1:2] == (port,):
                found.add(bool(each.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)))
    return found


@pytest.mark.parametrize("of_a_task", [False, True])
def test_connections_notice_a_peer_that_is_gone(of_a_task: bool) -> None:
    # it takes connections and never answers
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        settings = {"bootstrap.servers": f"127.0.0.1:{port}"}
        client = Consumer(consumer_settings(settings)) if of_a_task else LibrdkafkaCluster(settings)._admin
        with suppress(KafkaException):
            client.list_topics(timeout=1)
        assert kept_alive(port) == {True}
