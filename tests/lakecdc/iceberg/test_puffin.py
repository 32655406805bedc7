"""Deletion vectors and their Puffin frame, byte by byte and as pyiceberg reads them."""

from __future__ import annotations

import json
import struct
import zlib

import pytest
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile
from pyroaring import BitMap64

from lakecdc.iceberg.puffin import PuffinBuilder, decode_vector, encode_vector

SETS = {
    "one": [0],
    "few": [1, 5, 77],
    "run": list(range(10_000)),
    "beyond 32 bits": [3, 2**32 - 1, 2**32, 5 * 2**32 + 9],
    "alternating": list(range(0, 200_000, 2)),
}


def test_bytes_follow_the_specification() -> None:
    """Positions 1 and 5, written out by hand from the Puffin and Roaring specifications."""
    bitmap = (
        struct.pack("<Q", 1)  # one 32-bit bitmap
        + struct.pack("<I", 0)  # for the positions whose upper half is 0
        + struct.pack("<II", 12346, 1)  # no run containers, one container
        + struct.pack("<HH", 0, 2 - 1)  # its key, and its cardinality minus one
        + struct.pack("<I", 16)  # where it begins
        + struct.pack("<HH", 1, 5)
    )
    content = bytes.fromhex("d1d33964") + bitmap
    assert encode_vector(BitMap64([1, 5])) == struct.pack(">I", len(content)) + content + struct.pack(
        ">I", zlib.crc32(content)
    )


@pytest.mark.parametrize("positions", SETS.values(), ids=SETS)
def test_decoded_vectors_equal_encoded_ones(positions: list[int]) -> None:
    assert decode_vector(encode_vector(BitMap64(positions))) == BitMap64(positions)


def test_runs_are_compressed_in_a_copy_of_the_bitmap() -> None:
    positions = BitMap64(range(100_000))
    before = positions.serialize()
    assert len(encode_vector(positions)) < 100
    assert positions.serialize() == before


@pytest.mark.parametrize("at", [0, 5, 12, -1], ids=["length", "magic", "bitmap", "checksum"])
def test_a_damaged_vector_is_refused(at: int) -> None:
    blob = bytearray(encode_vector(BitMap64([1, 5])))
    blob[at] ^= 0x01
    with pytest.raises(ValueError, match="deletion vector"):
        decode_vector(bytes(blob))


def test_pyiceberg_reads_every_vector_of_a_file() -> None:
    builder = PuffinBuilder("test")
    files = {f"file:/tmp/Zürich €/{name}.parquet": positions for name, positions in SETS.items()}
    blobs = [builder.add(name, BitMap64(positions)) for name, positions in files.items()]
    content = builder.finish()
    vectors = deletion_vectors_from_puffin_file(PuffinFile(content))
    assert {v.referenced_data_file: v.to_vector().to_pylist() for v in vectors} == files
    for blob in blobs:
        stored = content[blob.offset : blob.offset + blob.length]
        assert decode_vector(stored) == BitMap64(files[blob.data_file])
        assert blob.cardinality == len(files[blob.data_file])


def test_the_footer_has_the_fields_that_readers_need() -> None:
    builder = PuffinBuilder("lakecdc test")
    blob = builder.add("s3://b/a.parquet", BitMap64([3]))
    content = builder.finish()
    (size,) = struct.unpack("<i", content[-12:-8])
    footer = json.loads(content[-12 - size : -12])
    assert footer["properties"] == {"created-by": "lakecdc test"}
    assert footer["blobs"] == [
        {
            "type": "deletion-vector-v1",
            "fields": [2147483645],
            "snapshot-id": -1,
            "sequence-number": -1,
            "offset": blob.offset,
            "length": blob.length,
            "properties": {"referenced-data-file": "s3://b/a.parquet", "cardinality": "1"},
        }
    ]
    assert content[:4] == content[-4:] == b"PFA1"


def test_an_empty_vector_is_refused() -> None:
    with pytest.raises(ValueError, match="is empty"):
        PuffinBuilder("test").add("a", BitMap64())
