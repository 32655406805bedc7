"""Keys in manifests and statistics files."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from lakecdc.contract.errors import UnsupportedError
from lakecdc.erase.decode import KeySearch, count_rows, search_avro, summarized_snapshots
from lakecdc.iceberg.puffin import PuffinBuilder

BOUNDS = {"type": "map", "values": "bytes"}
FILE = {
    "type": "record",
    "name": "r2",
    "fields": [
        {"name": "file_path", "type": "string"},
        {"name": "lower_bounds", "type": BOUNDS},
        {"name": "upper_bounds", "type": BOUNDS},
    ],
}
MANIFEST = {"type": "record", "name": "manifest_entry", "fields": [{"name": "data_file", "type": FILE}]}


def manifest(*files: tuple[tuple[bytes, ...], tuple[bytes, ...]]) -> BytesIO:
    """Return a manifest of files with bounds of the columns 1, 2, …."""

    def bounds(values: tuple[bytes, ...]) -> dict[str, bytes]:
        return {str(number): value for number, value in enumerate(values, 1)}

    records: list[Any] = [
        {"data_file": {"file_path": f"f{n}", "lower_bounds": bounds(low), "upper_bounds": bounds(high)}}
        for n, (low, high) in enumerate(files)
    ]
    stream = BytesIO()
    fastavro.writer(stream, MANIFEST, records)
    stream.seek(0)
    return stream


@pytest.mark.parametrize(
    ("low", "high", "matches"),
    [
        ((b"a", b"x"), (b"b", b"z"), True),
        ((b"A", b"x"), (b"a", b"z"), True),
        # each value belongs to another key
        ((b"a", b"w"), (b"b", b"y"), False),
        ((b"a", b"w"), (b"b", b"z"), False),
        ((b"a",), (b"b",), False),
    ],
)
def test_bounds_match_a_composite_key_by_all_columns(
    low: tuple[bytes, ...], high: tuple[bytes, ...], matches: bool
) -> None:
    keys = KeySearch(pa.table({}), [1, 2], [(b"a", b"x"), (b"c", b"y")])
    assert search_avro(manifest((low, high)), keys).entries == (["f0"] if matches else [])


def test_truncated_bounds_match_by_prefix() -> None:
    key = b"0123456789abcdefgh"
    keys = KeySearch(pa.table({}), [1], [(key,)])
    files = [((key[:16],), (b"z",)), ((b"0",), (b"0123456789abcdeg",)), ((b"0",), (b"1",))]
    assert search_avro(manifest(*files), keys).entries == ["f0", "f1"]


@pytest.mark.parametrize(("ids", "matches"), [((1000, 1001), 1), ((1000, 1002), 0)])
def test_partition_statistics_match_a_key_by_fields_that_preserve_its_values(
    ids: tuple[int, int], matches: int
) -> None:
    fields = [{"name": name, "type": ["null", "long"], "field-id": id} for name, id in zip("ab", ids, strict=True)]
    partition = {"type": "record", "name": "r1", "fields": fields}
    columns = [{"name": "partition", "type": partition}, {"name": "spec_id", "type": "int"}]
    schema: dict[str, Any] = {"type": "record", "name": "s", "fields": columns}
    stream = BytesIO()
    partitions = [(7, 8), (7, 9), (None, 8)]
    fastavro.writer(stream, schema, [{"partition": {"a": a, "b": b}, "spec_id": 0} for a, b in partitions])
    stream.seek(0)
    keys = KeySearch(pa.table({"x": [7], "y": [8]}), [1, 2], [(b"", b"")], partitions=[{1000}, {1001}])
    assert search_avro(stream, keys).rows == matches


def test_deletion_vectors_contain_no_values() -> None:
    vectors = PuffinBuilder("test")
    vectors.add("f", BitMap64([7]))
    assert summarized_snapshots(BytesIO(vectors.finish())) == []
    blob = {"type": "apache-datasketches-theta-v1", "fields": [1], "snapshot-id": 5, "sequence-number": 1}
    footer = json.dumps({"blobs": [{**blob, "offset": 4, "length": 1}]}).encode()
    sketches = b"PFA1xPFA1" + footer + len(footer).to_bytes(4, "little") + b"\0\0\0\0PFA1"
    assert summarized_snapshots(BytesIO(sketches)) == [5]


def parquet(**columns: int | None) -> BytesIO:
    """Write a Parquet file with one row of sevens.

    :param columns: names, each with the field id, or None for none.
    """
    fields = [
        pa.field(name, pa.int64(), metadata=None if number is None else {"PARQUET:field_id": str(number)})
        for name, number in columns.items()
    ]
    stream = BytesIO()
    pq.write_table(pa.table([pa.array([7])] * len(fields), schema=pa.schema(fields)), stream)
    stream.seek(0)
    return stream


# the column with id 1 was once named code
SEVEN = KeySearch(pa.table({"id": [7]}), [1], [(b"",)], known={1: {"id", "code"}, 2: {"v"}})


@pytest.mark.parametrize(
    ("columns", "is_referenced"),
    [
        ({"id": 1, "v": 2}, True),
        ({"code": 1, "v": 2}, False),
        # without field ids, or with field ids of another table
        ({"id": None, "v": None}, True),
        ({"ID": None}, False),
        ({"v": 1, "id": 3}, False),
        ({"other": 4, "code": 5}, False),
        # Iceberg matches columns by id, never by name
        ({"forgotten": 1}, True),
    ],
)
def test_keys_are_matched_by_name_without_reliable_field_ids(columns: dict[str, Any], is_referenced: bool) -> None:
    assert count_rows(parquet(**columns), SEVEN, is_referenced=is_referenced) > 0


@pytest.mark.parametrize(
    ("columns", "is_referenced"),
    [
        # a file older than the key column, and its deletes
        ({"v": 2}, False),
        ({"file_path": 2147483546, "pos": 2147483545}, False),
        ({"v": 2, "forgotten": 3}, True),
    ],
)
def test_files_without_the_key_columns_are_clean(columns: dict[str, Any], is_referenced: bool) -> None:
    assert count_rows(parquet(**columns), SEVEN, is_referenced=is_referenced) == 0


@pytest.mark.parametrize(
    ("columns", "is_referenced"),
    [
        ({"customer": None}, True),
        ({"customer": 1}, False),
        ({"v": 2, "customer": 3}, False),
        ({"partition": 1, "spec_id": 2, "customer": 3}, False),
        ({"file_path": 2147483546, "pos": 2147483545, "row": 2147483544}, True),
    ],
)
def test_parquet_files_of_unknown_columns_are_undecided(columns: dict[str, Any], is_referenced: bool) -> None:
    with pytest.raises(UnsupportedError):
        count_rows(parquet(**columns), SEVEN, is_referenced=is_referenced)


def test_avro_files_that_are_not_metadata_are_undecided() -> None:
    stream = BytesIO()
    fields = [{"name": "id", "type": "long", "field-id": 1}]
    schema: dict[str, Any] = {"type": "record", "name": "row", "fields": fields}
    fastavro.writer(stream, schema, [{"id": 7}])
    stream.seek(0)
    with pytest.raises(UnsupportedError, match="not Iceberg metadata"):
        search_avro(stream, SEVEN)
