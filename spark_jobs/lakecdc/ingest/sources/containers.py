"""Read Avro container files in tasks: each record becomes Debezium's JSON with its schema.

The quarantine can then replay records without their files. Source: Apache Avro 1.12 specification, "Object Container
Files".
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import pyarrow as pa

from lakecdc.ingest.engine.pieces import PLACE_BITS, UnusableFileError
from lakecdc.ingest.formats.avro_schema import read_schema
from lakecdc.reader.avro_codecs import add_codecs

#: columns of the files of a task; a file has a path, or else its content
CONTAINERS = "number bigint, file string, path string, content binary"
# bytes that become messages at once
_BYTES = 16 * 1024 * 1024


def read_containers(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the records of files as ``value, arrival``; the place of arrival combines the numbers of file and record.

    :raises UnusableFileError: a file is not a container, is damaged, or its schema cannot be used.
    """
    for number, file, path, content in (row.values() for batch in batches for row in batch.to_pylist()):
        with open(path, "rb") if content is None else io.BytesIO(content) as stream:
            texts, place, size = list[bytes](), number << PLACE_BITS, 0
            for text in _records(stream, file):
                texts.append(text)
                size += len(text)
                if size >= _BYTES:
                    yield _messages(texts, place)
                    texts, place, size = [], place + len(texts), 0
            yield _messages(texts, place)


def _messages(texts: list[bytes], place: int) -> pa.RecordBatch:
    arrival = pa.array(range(place, place + len(texts)), pa.int64())
    return pa.record_batch({"value": pa.array(texts, pa.binary()).cast(pa.string()), "arrival": arrival})


def _records(stream: BinaryIO, file: str) -> Iterator[bytes]:
    """Yield the records of a file."""
    # only needed with Avro, and slow to import
    from fastavro import block_reader

    add_codecs()
    try:
        # the bytes of a block are not among the declared attributes
        blocks: Any = block_reader(stream)
    except Exception as error:
        raise UnusableFileError(f"The file {file} is not an Avro container: {error!r}.") from error
    try:
        schema = read_schema(blocks.metadata["avro.schema"])
    except ValueError as error:
        raise UnusableFileError(f"The schema of the file {file} cannot be used: {error}.") from error
    head = b'{"schema":%b,"payload":' % schema.connect
    try:
        for block in blocks:
            for _ in range(block.num_records):
                yield head + schema.to_json(block.bytes_) + b"}"
            if block.bytes_.read(1):
                raise ValueError("a block has more bytes than its records")
    except Exception as error:
        raise UnusableFileError(f"The file {file} is damaged: {error!r}.") from error
