"""Measure writing a file to S3: our stream, Arrow's, and one request with the whole file.

    python -m benchmarks.uploads [--delay 0.03] [--repeats 3] [--sizes 100000,64000000,1000000000]

A file is written in pieces of a megabyte, like a Parquet writer does, through a gateway process that waits before each
answer and counts requests. ``put`` is boto3 with the file in memory. Contenders take turns; the fastest repeat counts.
The last line is JSON: MB per second, seconds, requests, and additional resident MiB.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil
from pyiceberg.io.pyarrow import PyArrowFileIO

from lakecdc.iceberg.file_io import output
from lakecdc.object_store.s3_client import s3_client
from local_services.s3 import S3Server
from local_services.s3_gateway import gateway_to

_PIECE = 1_000_000
_BUCKET, _KEY = "lab", "file"
_LOCATION = f"s3://{_BUCKET}/{_KEY}"

Properties = Mapping[str, str]


def _pieces(size: int) -> Iterator[bytes]:
    piece = bytes(range(250)) * (_PIECE // 250)
    for begin in range(0, size, _PIECE):
        yield piece[: size - begin]


def _ours(properties: Properties, size: int) -> None:
    with output(properties, _LOCATION) as file:
        for piece in _pieces(size):
            file.write(piece)


def _arrow(properties: Properties, size: int) -> None:
    with _arrow_io(tuple(properties.items())).new_output(_LOCATION).create(overwrite=True) as file:
        for piece in _pieces(size):
            file.write(piece)


def _put(properties: Properties, size: int) -> None:
    _client(tuple(properties.items())).put_object(Bucket=_BUCKET, Key=_KEY, Body=b"".join(_pieces(size)))


# all three keep their connections, as ours does by default
@lru_cache
def _arrow_io(properties: tuple[tuple[str, str], ...]) -> PyArrowFileIO:
    return PyArrowFileIO(dict(properties))


@lru_cache
def _client(properties: tuple[tuple[str, str], ...]) -> Any:
    return s3_client(dict(properties))


_CONTENDERS: dict[str, Callable[[Properties, int], None]] = {"ours": _ours, "arrow": _arrow, "put": _put}


def _pass_on(port: int, delay: float, connection: Connection) -> None:
    with gateway_to(port, delay=delay) as gateway:
        connection.send(gateway.endpoint)
        while connection.recv():
            connection.send(dict(gateway.requests))
            gateway.requests.clear()


@contextmanager
def _far(port: int, delay: float) -> Iterator[Connection]:
    """Yield a connection that sends the gateway's endpoint, then the requests since the previous query."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    gateway = context.Process(target=_pass_on, args=(port, delay, there))
    gateway.start()
    try:
        yield here
    finally:
        here.send(False)
        gateway.join()


def _measured(work: Callable[[], None]) -> tuple[float, int]:
    """Return seconds, and the peak of additional resident bytes of this process."""
    process, over = psutil.Process(), threading.Event()
    most = before = process.memory_info().rss

    def watch() -> None:
        nonlocal most
        while not over.wait(0.02):
            most = max(most, process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    begun = time.monotonic()
    try:
        work()
        return time.monotonic() - begun, most - before
    finally:
        over.set()
        watcher.join()


def _contest(server: S3Server, size: int, given: argparse.Namespace) -> dict[str, Any]:
    results: dict[str, Any] = {}
    with _far(server.port, given.delay) as gateway:
        properties = {**server.properties, "s3.endpoint": gateway.recv()}
        for _ in range(given.repeats):
            for name, write in _CONTENDERS.items():
                seconds, memory = _measured(lambda write=write: write(properties, size))  # type: ignore[misc]
                gateway.send(True)
                requests, head = gateway.recv(), server.client().head_object(Bucket=_BUCKET, Key=_KEY)
                assert head["ContentLength"] == size, f"{name} wrote {head['ContentLength']} bytes of {size}"
                server.client().delete_object(Bucket=_BUCKET, Key=_KEY)
                if name not in results or seconds < results[name]["s"]:
                    results[name] = {
                        "mb_s": round(size / seconds / 1e6, 1),
                        "s": round(seconds, 3),
                        "requests": sum(requests.values()),
                        "mib": memory // 2**20,
                    }
    for name, one in results.items():
        print(f"{size:>13,} bytes  {name:6}{one['s']:>8.3f} s{one['mb_s']:>8.1f} MB/s  {one['requests']} requests")
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--delay", type=float, default=0.03, help="seconds before each answer")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sizes", default="100000,64000000,1000000000", help="bytes")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, S3Server(Path(folder) / "buckets") as server:
        server.create_bucket(_BUCKET)
        results = {size: _contest(server, int(size), given) for size in given.sizes.split(",")}
    print(json.dumps({"name": "bench-uploads", "delay": given.delay, "sizes": results}))


if __name__ == "__main__":
    main()
