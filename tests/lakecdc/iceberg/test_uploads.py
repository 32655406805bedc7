"""Files are written completely or not at all: in S3 by one request, or in parts with little memory."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakecdc.contract.errors import InputError
from lakecdc.iceberg.file_io import output
from lakecdc.iceberg.uploads import PART_BYTES, Output
from local_services.s3 import S3Server
from local_services.s3_gateway import Gateway, gateway_to

MIB = 2**20
ROWS = pa.table({"n": list(range(1000))})


@pytest.fixture
def gateway(s3: S3Server) -> Iterator[Gateway]:
    with gateway_to(s3.port) as gateway:
        yield gateway


@pytest.fixture
def properties(s3: S3Server, gateway: Gateway) -> dict[str, str]:
    return {**s3.properties, "s3.endpoint": gateway.endpoint}


def left(s3: S3Server, key: str) -> list[Any]:
    client = s3.client()
    objects = client.list_objects_v2(Bucket="lab", Prefix=key).get("Contents", [])
    return [*objects, *client.list_multipart_uploads(Bucket="lab", Prefix=key).get("Uploads", [])]


def content(s3: S3Server, key: str) -> bytes:
    return bytes(s3.client().get_object(Bucket="lab", Key=key)["Body"].read())


@pytest.mark.services
def test_a_small_file_is_one_request(s3: S3Server, gateway: Gateway, properties: dict[str, str]) -> None:
    for key, size in {"one/empty": 0, "one/small": 5, "one/Zürich %2F €": 7, "one/part": PART_BYTES}.items():
        with output(properties, f"s3a://lab/{key}") as file:
            assert left(s3, key) == []
            file.write(b"x" * size)
        assert content(s3, key) == b"x" * size
    with output(properties, "s3://lab/one/rows.parquet") as file:
        pq.write_table(ROWS, file)
    assert pq.read_table(pa.BufferReader(content(s3, "one/rows.parquet"))) == ROWS
    assert gateway.requests == {"PutObject": 5}


@pytest.mark.services
def test_a_large_file_is_sent_in_parts(s3: S3Server, gateway: Gateway, properties: dict[str, str]) -> None:
    pieces = [bytes([number]) * (3 * MIB + number) for number in range(10)]
    with output(properties, "s3://lab/parts/file") as file:
        for piece in pieces:
            # Arrow writes its own buffers
            assert file.write(pa.py_buffer(piece)) == len(piece)
        assert file.tell() == sum(map(len, pieces))
    assert content(s3, "parts/file") == b"".join(pieces)
    assert gateway.requests == {"CreateMultipartUpload": 1, "UploadPart": 4, "CompleteMultipartUpload": 1}
    assert left(s3, "parts/file")[1:] == []


@pytest.mark.services
def test_a_file_takes_little_memory(s3: S3Server) -> None:
    process, piece = psutil.Process(), b"x" * MIB
    most = before = process.memory_info().rss
    with output(s3.properties, "s3://lab/memory") as file:
        for _ in range(300):
            file.write(piece)
            most = max(most, process.memory_info().rss)
    # one part is filled while four are sent
    assert most - before < 10 * PART_BYTES
    s3.client().delete_object(Bucket="lab", Key="memory")


@pytest.mark.services
@pytest.mark.parametrize("size", [5, 20 * MIB])
def test_an_exception_leaves_nothing(s3: S3Server, properties: dict[str, str], size: int) -> None:
    file = output(properties, "s3://lab/broken/file")
    with pytest.raises(KeyboardInterrupt), file:
        file.write(b"x" * size)
        raise KeyboardInterrupt
    file.close()
    with pytest.raises(ValueError, match="file is closed"):
        file.write(b"x")
    assert left(s3, "broken/") == []


@pytest.mark.services
def test_a_garbage_collected_file_leaves_nothing(s3: S3Server, properties: dict[str, str]) -> None:
    file = output(properties, "s3://lab/dropped/file")
    # it closes its file when it is collected
    writer = pq.ParquetWriter(file, ROWS.schema)
    writer.write_table(ROWS)
    file.write(b"x" * 20 * MIB)
    assert len(left(s3, "dropped/")) == 1
    del file, writer
    gc.collect()
    assert left(s3, "dropped/") == []


@pytest.mark.services
@pytest.mark.parametrize("kind", ["PutObject", "CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload"])
def test_a_refused_request_leaves_nothing(
    s3: S3Server, gateway: Gateway, properties: dict[str, str], kind: str
) -> None:
    gateway.refuses = lambda operation, number: operation == kind and number >= (2 if kind == "UploadPart" else 1)
    file = output(properties, f"s3://lab/refused/{kind}")

    def write() -> None:
        with file:
            file.write(b"x" * (5 if kind == "PutObject" else 60 * MIB))

    with pytest.raises(InputError, match=f"Cannot write s3://lab/refused/{kind}: .*AccessDenied"):
        write()
    # at any number of attempts, and when Arrow's writer is collected
    with pytest.raises(InputError):
        file.close()
    assert left(s3, "refused/") == []
    assert gateway.requests["UploadPart"] < 8 or kind == "CompleteMultipartUpload"
    assert gateway.requests["AbortMultipartUpload"] == (kind in ("UploadPart", "CompleteMultipartUpload"))


@pytest.mark.services
def test_concurrent_files_share_the_threads(s3: S3Server, gateway: Gateway, properties: dict[str, str]) -> None:
    files = [output(properties, f"s3://lab/many/{number}") for number in range(3)]

    def write(file: Output) -> None:
        with file:
            file.write(b"x" * 20 * MIB)

    threads = [threading.Thread(target=write, args=(file,)) for file in files]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 2 <= gateway.most_at_once <= 4
    assert [each["Size"] for each in left(s3, "many/")] == [20 * MIB] * 3


def test_an_exception_leaves_no_file(tmp_path: Path) -> None:
    place = tmp_path / "folder" / "file"
    with pytest.raises(ZeroDivisionError), output({}, f"file:{place}") as file:
        file.write(b"x")
        raise ZeroDivisionError
    assert not place.exists()
    with output({}, str(place)) as file:
        assert file.write(b"abc") == 3
    assert place.read_bytes() == b"abc"
