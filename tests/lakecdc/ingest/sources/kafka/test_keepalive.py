"""Connections notice a cluster that disappears without closing them."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

import pytest
from confluent_kafka import Consumer, KafkaException

from lakecdc.ingest.sources.kafka.librdkafka import LibrdkafkaCluster, consumer_settings


def kept_alive(port: int) -> set[bool]:
    """Return the keep-alive settings of this process' connections to a local port."""
    options = set()
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError), socket.socket(fileno=os.dup(int(name))) as each:
            if each.getpeername()[1:2] == (port,):
                options.add(bool(each.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)))
    return options


@pytest.mark.parametrize("of_a_task", [False, True])
def test_connections_notice_a_lost_peer(of_a_task: bool) -> None:
    # accepts connections and never answers
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        settings = {"bootstrap.servers": f"127.0.0.1:{port}"}
        client = Consumer(consumer_settings(settings)) if of_a_task else LibrdkafkaCluster(settings)._admin
        with suppress(KafkaException):
            client.list_topics(timeout=1)
        assert kept_alive(port) == {True}
