"""Files of every format, with and without bounds, and the bytes of deletion vectors."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from pyroaring import BitMap64

from lakecdc.iceberg.jvm import jvm
from lakecdc.iceberg.puffin import decode_vector, encode_vector
from tests.conftest import Lake
from tests.lakecdc.maintain.delete_files.support import change, convert, create, insert, spark_rows
from tests.lakecdc.maintain.support import count, listed_files
from tests.on_demand import on_demand
from tests.versions import V3


def write_as(lake: Lake, name: str, data_format: str) -> None:
    """Let the table's writers use another file format."""
    lake.sql(f"ALTER TABLE lake.{name} SET TBLPROPERTIES ('write.format.default'='{data_format}')")


@V3
def test_three_formats_in_one_table_are_converted(lake: Lake, version: int) -> None:
    """Data and delete files of each format, so that each delete file reaches data of the other formats too."""
    name = create(lake, "id bigint, s string, d decimal(12, 2), ts timestamp", version)
    for number, data_format in enumerate(("avro", "orc", "parquet")):
        write_as(lake, name, data_format)
        low = 10 * number
        values = "concat('é', id) AS s, CAST(id AS decimal(12, 2)) AS d, timestamp_seconds(id) AS ts"
        insert(lake, name, f"SELECT id, {values} FROM range({low}, {low + 10})")
        # one key per existing file, one that does not exist
        change(lake, name, ["id", "s"], f"SELECT id, concat('é', id) AS s FROM range({number}, {low + 10}, 10)")
    change(lake, name, ["ts"], "SELECT timestamp_seconds(9) AS ts")
    # pyiceberg and DuckDB support only Parquet
    report = convert(lake, name, readers=())
    assert report.metrics["positions"] == 1 + 2 + 3 + 1
    formats = {file.file_format.value for file in listed_files(lake, name, 1)}
    assert formats == ({"PARQUET"} if version == 2 else {"PUFFIN"})


@pytest.mark.parametrize("mode", on_demand(("truncate(2)", "none"), in_ci=("truncate(2)",)))
def test_missing_and_truncated_bounds_prune_nothing(lake: Lake, mode: str) -> None:
    """Bounds that are missing or shorter than the values must not prune a file."""
    name = create(lake, "id bigint, code string", 2, write__metadata__metrics__default=mode)
    insert(lake, name, "SELECT id, concat('common prefix ', id) AS code FROM range(20)", files=2)
    change(lake, name, ["code"], "SELECT concat('common prefix ', id) AS code FROM range(5)")
    change(lake, name, ["id", "code"], "SELECT id, concat('common prefix ', id) AS code FROM range(5, 8)")
    change(lake, name, ["code"], "SELECT CAST(NULL AS string) AS code")
    assert convert(lake, name).metrics["positions"] == 8


@pytest.mark.soak
def test_deletes_with_bounds_apply_to_data_without_bounds(lake: Lake) -> None:
    name = create(lake, "id bigint, v string", 3, write__metadata__metrics__default="none")
    insert(lake, name, "SELECT id, 'a' AS v FROM range(10)")
    lake.sql(f"ALTER TABLE lake.{name} SET TBLPROPERTIES ('write.metadata.metrics.default'='full')")
    insert(lake, name, "SELECT id, 'b' AS v FROM range(5, 15)")
    change(lake, name, ["id"], "SELECT id FROM range(9, 11)")
    assert convert(lake, name).metrics["positions"] == 3
    assert count(lake, name, 1) == 2
    assert len(spark_rows(lake, name)) == 17


# half-open ranges of positions, or single positions
VECTORS: dict[str, list[tuple[int, int]]] = {
    "beyond 32 bits": [(0, 1), (2**32 - 1, 2**32 + 1), (5 * 2**32 + 9, 5 * 2**32 + 10)],
    "runs": [(0, 70_000), (2**32 - 5, 2**32 + 70_000)],
    "array and bitmap": [(0, 1), (65_536, 65_537), *((2**33 + p, 2**33 + p + 1) for p in range(0, 10_000, 2))],
}


def as_bitmap(ranges: list[tuple[int, int]]) -> BitMap64:
    """Return the positions of half-open ranges."""
    bitmap = BitMap64()
    for low, high in ranges:
        bitmap.add_range(low, high)
    return bitmap


def read_by_iceberg(lake: Lake, vector: bytes, cardinality: int) -> Any:
    """Return Iceberg's position index, built from the bytes of a deletion vector."""
    view = jvm(lake.spark).org.apache.iceberg
    described = (
        view.FileMetadata.deleteFileBuilder(view.PartitionSpec.unpartitioned())
        .ofPositionDeletes()
        .withFormat("PUFFIN")
        .withPath("file:/tmp/a.puffin")
        .withReferencedDataFile("file:/tmp/a.parquet")
        .withFileSizeInBytes(len(vector) + 4)
        .withContentOffset(4)
        .withContentSizeInBytes(len(vector))
        .withRecordCount(cardinality)
        .build()
    )
    return view.deletes.PositionDeleteIndex.deserialize(bytearray(vector), described)


def test_a_vector_beyond_32_bits_follows_the_specification() -> None:
    """Positions 7 and 2³³ + 7, written out by hand from the Puffin and Roaring specifications."""
    one = struct.pack("<II", 12346, 1) + struct.pack("<HH", 0, 1 - 1) + struct.pack("<I", 16) + struct.pack("<H", 7)
    # number of 32-bit bitmaps, then each bitmap after the upper half of its positions
    bitmaps = struct.pack("<Q", 2) + struct.pack("<I", 0) + one + struct.pack("<I", 2) + one
    vector = encode_vector(BitMap64([7, 2**33 + 7]))
    assert vector[8:-4] == bitmaps
    assert vector[:8] == struct.pack(">I", 4 + len(bitmaps)) + bytes.fromhex("d1d33964")


@pytest.mark.parametrize("ranges", VECTORS.values(), ids=VECTORS)
def test_vectors_are_exchanged_with_iceberg(lake: Lake, ranges: list[tuple[int, int]]) -> None:
    expected = as_bitmap(ranges)
    # its class is not public, but reading a vector creates one
    index = read_by_iceberg(lake, encode_vector(BitMap64([0])), 1)
    for low, high in ranges:
        index.delete(low, high)
    # not the same bytes: Iceberg writes an empty bitmap for each missing upper half
    assert decode_vector(bytes(index.serialize().array())) == expected
    back = read_by_iceberg(lake, encode_vector(expected), len(expected))
    assert back.cardinality() == len(expected)
    low, high = ranges[-1]
    assert [back.isDeleted(position) for position in (low - 1, low, high - 1, high)] == [False, True, True, False]


def test_vectors_of_each_puffin_file_are_listed_together(lake: Lake) -> None:
    """If they are mixed, DuckDB 1.5.5 applies the vectors of other data files; it takes dozens of files to show."""
    name = create(lake, "id bigint NOT NULL, p bigint, v string", 3, "p")
    insert(lake, name, "SELECT id, id % 10 AS p, 'a' AS v FROM range(480)", files=7)
    change(lake, name, ["id", "p"], "SELECT id, id % 10 AS p FROM range(480) WHERE hash(id) % 5 < 2")
    convert(lake, name)
    assert count(lake, name, 1) > 50
    vectors = lake.table(name).metadata("files").where("content = 1").select("file_path", "content_offset").collect()
    assert len({row[0] for row in vectors}) > 1
