"""Iceberg's REST catalog fixture as a local process, with tables on the local S3 server or in a folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from local_services.catalog_tools import ICEBERG_REST
from local_services.process import Service, http_answers
from local_services.s3 import REGION, S3Server


class IcebergRest(Service):
    """A REST catalog that stores its contents in a SQLite file, so that it survives a restart.

    :param folder: folder of the catalog's file, created if missing and kept after ``stop``
    :param s3: the running server of the tables; None keeps them in the folder
    :param bucket: bucket of the warehouse, created if missing
    :param port: port to listen on; a free one if None
    """

    name = "iceberg-rest"

    def __init__(
        self, folder: Path, s3: S3Server | None = None, *, bucket: str = "warehouse", port: int | None = None
    ) -> None:
        self.folder = folder.absolute()
        self.s3 = s3
        self.bucket = bucket
        super().__init__(self.folder / "iceberg-rest.log", port)

    @property
    def uri(self) -> str:
        """Return the address of the catalog."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def properties(self) -> dict[str, str]:
        """Return catalog properties for a client, in pyiceberg's names."""
        storage = self.s3.properties if self.s3 else {}
        return {"type": "rest", "uri": self.uri, "warehouse": self.warehouse, **storage}

    @property
    def warehouse(self) -> str:
        """Return the location of the tables."""
        return f"s3://{self.bucket}/" if self.s3 else f"file://{self.folder}/{self.bucket}"

    def prepare(self) -> None:
        """Check that the catalog is installed, and create the folder and the bucket."""
        ICEBERG_REST.check()
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.s3:
            self.s3.create_bucket(self.bucket)

    def command(self) -> Sequence[str]:
        """Return the command line of the server."""
        catalog = {
            "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            "uri": f"jdbc:sqlite:{self.folder}/catalog.db",
            "jdbc.schema-version": "V1",
            "warehouse": self.warehouse,
        }
        if self.s3:
            catalog |= {
                "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
                "s3.endpoint": self.s3.endpoint,
                "s3.path-style-access": "true",
                "client.region": REGION,
            }
        jvm = [
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        ]
        path = f"{ICEBERG_REST.folder / 'classes'}:{ICEBERG_REST.folder / 'lib'}/*"
        return [java(), *jvm, "-cp", path, "IcebergRest", str(self.port), *(f"{k}={v}" for k, v in catalog.items())]

    def environment(self) -> Mapping[str, str]:
        """Return the S3 account; other users could see it on the command line."""
        return self.s3.aws_environment if self.s3 else {}

    def is_ready(self) -> bool:
        """Return whether the catalog serves its configuration."""
        return http_answers(f"{self.uri}/v1/config")


def java() -> str:
    """Return the Java program that Spark would choose."""
    home = os.environ.get("JAVA_HOME")
    return os.path.join(home, "bin", "java") if home else shutil.which("java") or "java"
