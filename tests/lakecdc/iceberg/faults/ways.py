"""Catalogs of every kind, each with a lossy connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from lakecdc.iceberg.jvm import jvm
from local_services.catalogs import ACCOUNT, Glue, HiveMetastore
from local_services.iceberg_rest import IcebergRest
from local_services.postgres import Postgres
from local_services.s3 import S3Server
from tests.conftest import Lake
from tests.lakecdc.iceberg.faults.object_store import lossy_storage
from tests.lakecdc.iceberg.faults.postgres import lossy_way
from tests.lakecdc.iceberg.faults.rest import lossy_gateway
from tests.lakecdc.iceberg.faults.sqlite import lossy_driver
from tests.lakecdc.iceberg.faults.work import Place
from tests.open_folder import open_folder

Way = Callable[[Lake, Path], AbstractContextManager[Place]]


@contextmanager
def sqlite(lake: Lake, folder: Path) -> Iterator[Place]:
    """Yield a SQLite catalog behind a driver that loses answers."""
    with lossy_driver(lake.spark) as (way, strikes):
        direct = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db"}
        yield Place.opened(lake, folder, direct, strikes, uri=f"{way}{folder}/catalog.db")


@contextmanager
def postgres(lake: Lake, folder: Path) -> Iterator[Place]:
    """Yield a Postgres catalog behind a connection that ends."""
    with open_folder() as data, Postgres(data / "data") as server, lossy_way(server.port) as (port, strikes):
        # faults match the statement's text, which prepared statements do not repeat
        uri = f"postgresql://postgres@127.0.0.1:{port}/postgres?prepareThreshold=0&sslmode=disable"
        direct = {"type": "sql", "uri": server.uri.replace(":", "+psycopg2:", 1)}
        yield Place.opened(lake, folder, direct, strikes, uri=uri)


@contextmanager
def rest(lake: Lake, folder: Path) -> Iterator[Place]:
    """Yield a REST catalog behind a gateway."""
    with IcebergRest(folder) as server, lossy_gateway(server.port) as (port, strikes):
        yield Place.opened(lake, folder, server.properties, strikes, uri=f"http://127.0.0.1:{port}")


@contextmanager
def glue(lake: Lake, folder: Path) -> Iterator[Place]:
    """Yield Glue behind a gateway, with direct access to its storage."""
    system = jvm(lake.spark).java.lang.System
    system.setProperty("aws.accessKeyId", ACCOUNT["AWS_ACCESS_KEY_ID"])
    system.setProperty("aws.secretAccessKey", ACCOUNT["AWS_SECRET_ACCESS_KEY"])
    with pytest.MonkeyPatch.context() as patch, Glue(folder) as server, lossy_gateway(server.port) as (port, strikes):
        for name, value in ACCOUNT.items():
            patch.setenv(name, value)
        yield Place.opened(lake, folder, server.properties, strikes, glue_endpoint=f"http://127.0.0.1:{port}")


@contextmanager
def hive(lake: Lake, folder: Path) -> Iterator[Place]:
    """Yield Hive's metastore behind a connection that ends."""
    with HiveMetastore(folder) as server, lossy_way(server.port) as (port, strikes):
        yield Place.opened(lake, folder, server.properties, strikes, uri=f"thrift://127.0.0.1:{port}")


@contextmanager
def object_store(lake: Lake, folder: Path) -> Iterator[Place]:
    """Yield a catalog in a folder whose storage loses answers."""
    with lossy_storage() as strikes:
        place = Place.opened(lake, folder, {"type": "object_store"}, strikes)
    yield place


@contextmanager
def object_store_in_s3(lake: Lake, folder: Path) -> Iterator[Place]:
    """Yield a catalog in a bucket whose storage loses answers."""
    with S3Server(folder / "buckets") as server:
        server.create_bucket("lab")
        direct = {"type": "object_store", "warehouse": "s3://lab/lake", **server.properties}
        with lossy_storage() as strikes:
            place = Place.opened(lake, folder, direct, strikes)
        yield place


_ALL = (sqlite, postgres, rest, glue, hive, object_store, object_store_in_s3)
WAYS: Mapping[str, Way] = {way.__name__: way for way in _ALL}
