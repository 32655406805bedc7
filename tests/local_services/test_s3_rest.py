"""The real S3 server and the real REST catalog: conditional writes decide races, tables live in buckets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from botocore.exceptions import ClientError

from local_services.iceberg_rest import IcebergRest
from local_services.s3 import S3Server

pytestmark = pytest.mark.services


def status(call: Callable[..., Any], **arguments: Any) -> int:
    """Return the HTTP status of a boto3 call, whether it raises or not."""
    try:
        return int(call(**arguments)["ResponseMetadata"]["HTTPStatusCode"])
    except ClientError as error:
        return int(error.response["ResponseMetadata"]["HTTPStatusCode"])


def body(client: Any, key: str) -> bytes:
    """Return the content of an object."""
    return bytes(client.get_object(Bucket="lab", Key=key)["Body"].read())


def test_if_none_match_creates_once(s3: S3Server) -> None:
    client = s3.client()
    assert status(client.put_object, Bucket="lab", Key="once", Body=b"1", IfNoneMatch="*") == 200
    assert status(client.put_object, Bucket="lab", Key="once", Body=b"2", IfNoneMatch="*") == 412
    assert body(client, "once") == b"1"


def test_if_match_refuses_a_stale_writer(s3: S3Server) -> None:
    client = s3.client()
    tag = client.put_object(Bucket="lab", Key="pointer", Body=b"v1")["ETag"]
    assert status(client.put_object, Bucket="lab", Key="pointer", Body=b"v2", IfMatch=tag) == 200
    assert status(client.put_object, Bucket="lab", Key="pointer", Body=b"v3", IfMatch=tag) == 412
    assert body(client, "pointer") == b"v2"


def test_one_of_eight_writers_wins_each_round(s3: S3Server) -> None:
    clients = [s3.client() for _ in range(8)]
    barrier = Barrier(8)

    def move(client: Any, tag: str) -> int:
        barrier.wait()
        return status(client.put_object, Bucket="lab", Key="raced", Body=tag.encode(), IfMatch=tag)

    clients[0].put_object(Bucket="lab", Key="raced", Body=b"start")
    for round_number in range(10):
        clients[0].put_object(Bucket="lab", Key="raced", Body=str(round_number).encode())
        tag = clients[0].head_object(Bucket="lab", Key="raced")["ETag"]
        with ThreadPoolExecutor(8) as pool:
            answers = Counter(pool.map(move, clients, [tag] * 8))
        assert answers[200] == 1, answers


def test_buckets_survive_a_restart(s3: S3Server) -> None:
    s3.client().put_object(Bucket="lab", Key="kept", Body=b"x")
    s3.stop()
    s3.start()
    s3.create_bucket("lab")
    assert body(s3.client(), "kept") == b"x"


def test_metadata_is_stored_beside_the_objects_without_attributes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("local_services.s3.has_attributes", lambda folder: False)
    with S3Server(tmp_path / "buckets") as server:
        server.create_bucket("lab")
        tag = server.client().put_object(Bucket="lab", Key="k", Body=b"1")["ETag"]
        assert status(server.client().put_object, Bucket="lab", Key="k", Body=b"2", IfMatch=tag) == 200
        assert status(server.client().put_object, Bucket="lab", Key="k", Body=b"3", IfMatch=tag) == 412


def test_rest_catalog_creates_a_table_on_s3(s3: S3Server, tmp_path: Path) -> None:
    import pyarrow as pa
    from pyiceberg.catalog import load_catalog

    rows = pa.table({"id": pa.array([1, 2], pa.int64())})
    with IcebergRest(tmp_path / "rest", s3) as server:
        catalog = load_catalog("lake", **server.properties)
        catalog.create_namespace("shop")
        assert catalog.list_namespaces() == [("shop",)]
        table = catalog.create_table("shop.orders", rows.schema)
        table.append(rows)
        assert table.location().startswith("s3://warehouse/")
        server.stop()
        server.start()
        again = load_catalog("lake", **server.properties).load_table("shop.orders")
        assert again.scan().to_arrow().num_rows == 2
