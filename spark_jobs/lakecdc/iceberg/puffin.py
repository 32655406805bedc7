"""Puffin files with deletion vectors: framing only, no Spark, no file system.

Layouts: Iceberg's Puffin specification (file, footer, blob type ``deletion-vector-v1``) and Roaring's portable 64-bit
format, which ``pyroaring.BitMap64`` serialises byte for byte.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyroaring import BitMap64

_FILE_MAGIC = b"PFA1"
_VECTOR_MAGIC = b"\xd1\xd3\x39\x64"
_NO_FLAGS = b"\0\0\0\0"
#: reserved field id of ``_pos`` (table specification, reserved field ids)
_POSITION_FIELD_ID = 2147483645


@dataclass(frozen=True)
class Blob:
    """Place of one deletion vector in its Puffin file.

    :param offset: first byte in the Puffin file.
    """

    data_file: str
    offset: int
    length: int
    cardinality: int


class PuffinBuilder:
    """Builder of one Puffin file of deletion vectors, in memory; the footer has the writer's name and version."""

    def __init__(self, created_by: str) -> None:
        self._created_by = created_by
        self._body = bytearray(_FILE_MAGIC)
        self.blobs: list[Blob] = []

    def add(self, data_file: str, positions: BitMap64) -> Blob:
        """Append the deletion vector of one data file.

        :param data_file: its location, exactly as the table names it.
        :raises ValueError: there is no position, and readers refuse an empty vector.
        """
        if not positions:
            raise ValueError(f"the deletion vector of {data_file} is empty")
        content = encode_vector(positions)
        blob = Blob(data_file, len(self._body), len(content), len(positions))
        self._body += content
        self.blobs.append(blob)
        return blob

    def finish(self) -> bytes:
        """Return the whole file."""
        document = {"blobs": [_metadata(blob) for blob in self.blobs], "properties": {"created-by": self._created_by}}
        payload = json.dumps(document, ensure_ascii=False).encode()
        footer = _FILE_MAGIC + payload + struct.pack("<i", len(payload)) + _NO_FLAGS + _FILE_MAGIC
        return bytes(self._body) + footer


def encode_vector(positions: BitMap64) -> bytes:
    """Encode one ``deletion-vector-v1`` blob: length, magic, bitmap, checksum."""
    compact = positions.copy()
    compact.run_optimize()
    content = _VECTOR_MAGIC + compact.serialize()
    return struct.pack(">I", len(content)) + content + struct.pack(">I", zlib.crc32(content))


def decode_vector(blob: bytes) -> BitMap64:
    """Decode the positions of one ``deletion-vector-v1`` blob.

    :raises ValueError: length, magic or checksum are wrong.
    """
    from pyroaring import BitMap64

    (length,) = struct.unpack_from(">I", blob)
    content = blob[4 : 4 + length]
    if len(blob) != length + 8 or content[:4] != _VECTOR_MAGIC:
        raise ValueError("not a deletion vector")
    if struct.unpack(">I", blob[4 + length :])[0] != zlib.crc32(content):
        raise ValueError("the checksum of the deletion vector is wrong")
    return BitMap64.deserialize(content[4:])


def bitmap(positions: Any) -> BitMap64:
    """Build a set of positions from a numpy array of them."""
    from array import array

    from pyroaring import BitMap64

    # twice as fast as from the numpy array itself
    return BitMap64(array("Q", positions.astype("uint64").tobytes()))


def _metadata(blob: Blob) -> dict[str, Any]:
    return {
        "type": "deletion-vector-v1",
        "fields": [_POSITION_FIELD_ID],
        # not known before the commit, and not used for deletion vectors
        "snapshot-id": -1,
        "sequence-number": -1,
        "offset": blob.offset,
        "length": blob.length,
        "properties": {"referenced-data-file": blob.data_file, "cardinality": str(blob.cardinality)},
    }
