"""Let fastavro read blocks in all codecs of container files (Apache Avro 1.12 specification, "Required Codecs")."""

from __future__ import annotations

import io
import zlib
from typing import Any

import pyarrow as pa


def add_codecs() -> None:
    """Add the codecs for which fastavro needs other packages to those it has."""
    # only needed with Avro, and slow to import
    from fastavro.read import BLOCK_READERS

    BLOCK_READERS |= {"snappy": _unpack_snappy, "zstandard": _unpack_zstandard}


def _unpack_snappy(stream: Any) -> io.BytesIO:
    data = _block(stream)
    size = shift = 0
    for byte in data:
        size |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    content = pa.decompress(data[:-4], size, "snappy", asbytes=True)
    if zlib.crc32(content) != int.from_bytes(data[-4:], "big"):
        raise ValueError("a block has a wrong checksum")
    return io.BytesIO(content)


def _unpack_zstandard(stream: Any) -> io.BytesIO:
    return io.BytesIO(pa.input_stream(pa.py_buffer(_block(stream)), compression="zstd").read())


def _block(stream: Any) -> bytes:
    from fastavro import schemaless_reader

    data: Any = schemaless_reader(stream, "bytes", None)
    return bytes(data)
