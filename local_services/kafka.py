"""One Kafka node as a local process: broker and controller in one JVM, no ZooKeeper."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Sequence
from pathlib import Path

from local_services.iceberg_rest import java
from local_services.kafka_jars import class_path
from local_services.process import ANSWER_SECONDS, Service, free_port, port_answers

JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")

_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "num.partitions": "1",
    "default.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "num.network.threads": "1",
    "num.io.threads": "2",
    "background.threads": "2",
    "log.cleaner.dedupe.buffer.size": "8388608",
    "log.segment.bytes": "16777216",
    # records of tests have the times of their source, possibly years ago
    "log.retention.ms": "-1",
    "log.index.size.max.bytes": "1048576",
    # after a crash the controller waits this long for the broker it still believes to be alive
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
}


class Kafka(Service):
    """A Kafka node on 127.0.0.1; its topics survive a stop, a crash and a restart.

    :param folder: data, settings and log, created if missing and kept after ``stop``
    :param port: port to listen on; a free one if None
    :param password: if given, the user ``lakecdc`` may log in at a second port by SASL/PLAIN
    """

    name = "kafka"

    def __init__(self, folder: Path, *, port: int | None = None, password: str | None = None) -> None:
        self.folder = folder.absolute()
        self._controller_port, self._sasl_port, self._password = free_port(), free_port(), password
        super().__init__(self.folder / "kafka.log", port)

    @property
    def bootstrap_servers(self) -> str:
        """Return the address for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def sasl_servers(self) -> str:
        """Return the address for clients that log in."""
        return f"127.0.0.1:{self._sasl_port}"

    def prepare(self) -> None:
        """Write the settings and, the first time, format the data folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._settings_file.write_text("".join(f"{key}={value}\n" for key, value in self._settings().items()))
        if not (self.folder / "data" / "meta.properties").exists():
            cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
            # a value that begins with a hyphen would be parsed as an option
            tool = ("kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "-c", str(self._settings_file))
            self.run_tool([java(), *JVM, "-cp", class_path(), *tool])

    def command(self) -> Sequence[str]:
        """Return the command line of the server."""
        memory = ("-Xms64m", "-Xmx384m")
        return [java(), *memory, *JVM, "-cp", class_path(), "kafka.Kafka", str(self._settings_file)]

    def is_ready(self) -> bool:
        """Return whether the broker answers a request for its topics."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        # on a closed port the client retries until its timeout, which would delay noticing that the broker has ended
        if not port_answers(self.port):
            return False
        try:
            admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
            metadata = admin.list_topics(timeout=ANSWER_SECONDS)
        except KafkaException:
            return False
        return bool(metadata.brokers)

    @property
    def _settings_file(self) -> Path:
        return self.folder / "server.properties"

    def _settings(self) -> dict[str, str]:
        client, controller = f"PLAINTEXT://{self.bootstrap_servers}", f"127.0.0.1:{self._controller_port}"
        settings = {**_SETTINGS}
        if self._password is not None:
            client += f",SASL_PLAINTEXT://{self.sasl_servers}"
            module = "org.apache.kafka.common.security.plain.PlainLoginModule"
            settings["listener.security.protocol.map"] += ",SASL_PLAINTEXT:SASL_PLAINTEXT"
            settings["sasl.enabled.mechanisms"] = "PLAIN"
            login = f'{module} required user_lakecdc="{self._password}";'
            settings["listener.name.sasl_plaintext.plain.sasl.jaas.config"] = login
        return {
            **settings,
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"{client},CONTROLLER://{controller}",
            "advertised.listeners": client,
            "log.dirs": str(self.folder / "data"),
        }
