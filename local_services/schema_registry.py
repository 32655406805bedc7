"""Apicurio Registry as a local process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from local_services.iceberg_rest import java
from local_services.kafka import JVM
from local_services.process import Service, http_answers
from local_services.registry_jars import server_jar


class SchemaRegistry(Service):
    """A registry that loses its schemas when it stops.

    :param folder: folder of its log
    :param port: port to listen on; a free one if None
    """

    name = "schema registry"

    def __init__(self, folder: Path, *, port: int | None = None) -> None:
        super().__init__(folder.absolute() / "registry.log", port)

    @property
    def uri(self) -> str:
        """Return the address of its native API."""
        return f"http://127.0.0.1:{self.port}/apis/registry/v2"

    @property
    def confluent_uri(self) -> str:
        """Return the address of its Confluent-compatible API."""
        return f"http://127.0.0.1:{self.port}/apis/ccompat/v7"

    def command(self) -> Sequence[str]:
        """Return the command line of the server."""
        return [java(), "-Xms64m", "-Xmx384m", *JVM, "-jar", str(server_jar())]

    def environment(self) -> Mapping[str, str]:
        """Return the settings of the server."""
        return {
            "QUARKUS_HTTP_HOST": "127.0.0.1",
            "QUARKUS_HTTP_PORT": str(self.port),
            "QUARKUS_LOG_LEVEL": "WARN",
        }

    def is_ready(self) -> bool:
        """Return whether it lists its schemas."""
        return http_answers(f"{self.confluent_uri}/subjects")


def converter_settings(registry: SchemaRegistry) -> dict[str, str]:
    """Return the settings of a Connect worker that writes keys and values in Avro."""
    settings = {
        "": "io.apicurio.registry.utils.converter.AvroConverter",
        ".apicurio.registry.url": registry.uri,
        ".apicurio.registry.auto-register": "true",
    }
    # Confluent's wire format; the default, in this case of values, is an id of 8 bytes in a header
    confluent = {"key.converter.apicurio.registry.as-confluent": "true"}
    confluent["key.converter.apicurio.registry.headers.enabled"] = "false"
    return confluent | {
        f"{part}.converter{name}": value for part in ("key", "value") for name, value in settings.items()
    }
