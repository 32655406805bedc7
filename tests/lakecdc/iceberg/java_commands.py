"""Recording of the commands that py4j sends to the JVM."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import MEMORY_COMMAND_NAME

from lakecdc.iceberg.jvm import gateway

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def sent_commands(spark: SparkSession) -> Iterator[list[str]]:
    """Record the commands that are sent, except for releases of garbage-collected objects, which come at any time."""
    client = gateway(spark)._gateway_client
    sent, send = list[str](), client.send_command

    def noted(command: str, *rest: Any, **more: Any) -> Any:
        if not command.startswith(MEMORY_COMMAND_NAME):
            sent.append(command)
        return send(command, *rest, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "send_command", noted)
        yield sent
