"""Live rows of data files: ranges, deletes, row lineage, and files that tasks cannot read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import orc
from pyroaring import BitMap64

from lakecdc.iceberg.puffin import PuffinBuilder
from lakecdc.metadata.names import ROW_ID, ROW_ID_ID, UPDATED, UPDATED_ID
from lakecdc.model.iceberg_columns import arrow_field
from lakecdc.reader.data_files import FileRows, deleted_positions
from lakecdc.reader.projection import ReadColumn, UnreadError

ID = ReadColumn(1, "id", "long", True)
ROWS = 1000


def written(place: Path, columns: dict[str, Any] | None = None) -> dict[str, Any]:
    """Write a file with the ids 0 … 999 in row groups of 300 rows; return its description for tasks."""
    fields = [arrow_field(1, "id", "long", True)]
    stored = {ROW_ID: ROW_ID_ID, UPDATED: UPDATED_ID}
    fields += [arrow_field(stored[name], name, "long", False) for name in columns or ()]
    table = pa.table([range(ROWS), *(columns or {}).values()], schema=pa.schema(fields))
    pq.write_table(table, place, row_group_size=300)
    facts = {"location": str(place), "records": ROWS, "first_row_id": 5000, "sequence_number": 7}
    return {**facts, "constants": None, "deletes": []}


def vector(folder: Path, data_file: str, positions: Sequence[int]) -> dict[str, Any]:
    """Write a deletion vector, among others in its file; return its description for tasks."""
    builder = PuffinBuilder("tests")
    builder.add("another", BitMap64([0]))
    blob = builder.add(data_file, BitMap64(positions))
    place = folder / f"{len(positions)}.puffin"
    place.write_bytes(builder.finish())
    return {"location": str(place), "format": "PUFFIN", "offset": blob.offset, "length": blob.length}


def deletes(folder: Path, rows: Sequence[tuple[str, int]]) -> dict[str, Any]:
    """Write a position-delete file; return its description for tasks."""
    place = folder / f"{len(rows)}-deletes.parquet"
    paths, positions = zip(*rows, strict=True)
    pq.write_table(pa.table({"file_path": paths, "pos": pa.array(positions, pa.int64())}), place, row_group_size=2)
    return {"location": str(place), "format": "PARQUET", "offset": None, "length": None}


def ids(rows: FileRows) -> list[int]:
    """Return the live ids."""
    return [value for table in rows for value in table["id"].to_pylist()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the examples."""
    return tmp_path_factory.mktemp("files")


@settings(max_examples=30)
@given(
    st.sets(st.integers(0, ROWS - 1), min_size=1),
    st.sets(st.integers(0, ROWS + 50), max_size=20),
    st.lists(st.integers(0, ROWS), min_size=2, max_size=2).map(sorted),
)
def test_ranges_contain_their_live_rows(folder: Path, by_vector: set[int], by_file: set[int], ends: list[int]) -> None:
    file = written(folder / "range.parquet")
    rows = [("another", 3), *((file["location"], position) for position in sorted(by_file)), ("third", 4)]
    place = folder / f"{hash((tuple(by_file), tuple(by_vector)))}"
    place.mkdir(exist_ok=True)
    file["deletes"] = [vector(place, file["location"], sorted(by_vector)), deletes(place, rows)]
    reading = FileRows(file, (ID,), {}, begin=ends[0], end=ends[1])
    dead = by_vector | by_file
    expected = [number for number in range(*ends) if number not in dead]
    assert ids(reading) == expected
    assert (reading.rows, reading.deleted) == (len(expected), ends[1] - ends[0] - len(expected))


def test_rows_have_stored_lineage_or_that_of_their_position(tmp_path: Path) -> None:
    stored = [None if number % 3 else number * 10 for number in range(ROWS)]
    file = written(tmp_path / "a.parquet", {ROW_ID: stored, UPDATED: [number and 3 for number in stored]})
    (table,) = FileRows(file, (ID,), {}, lineage=True, begin=900, end=903)
    assert table.column_names == ["id", ROW_ID, UPDATED]
    assert table.to_pydict() == {"id": [900, 901, 902], ROW_ID: [9000, 5901, 5902], UPDATED: [3, 7, 7]}
    (whole,) = FileRows(written(tmp_path / "b.parquet"), (ID,), {}, lineage=True)
    assert whole[ROW_ID].to_pylist() == list(range(5000, 5000 + ROWS)) and set(whole[UPDATED].to_pylist()) == {7}
    # as in Iceberg's reader before a commit assigns the file's first row id
    (without,) = FileRows({**file, "first_row_id": None}, (ID,), {}, lineage=True)
    assert without[ROW_ID].null_count == without[UPDATED].null_count == ROWS


def test_columns_missing_in_a_file_have_a_value_for_each_row(tmp_path: Path) -> None:
    file = written(tmp_path / "a.parquet") | {"constants": '{"9": "x"}'}
    rows = FileRows(file, (ReadColumn(9, "day", "string", True),), {}, begin=10, end=500)
    assert [value for table in rows for value in table["day"].to_pylist()] == ["x"] * 490


def test_a_delete_file_of_many_data_files_is_read_once(tmp_path: Path) -> None:
    shared = deletes(tmp_path, [(f"f{number // 3}", number) for number in range(30)])
    assert deleted_positions([shared], "f2", {}) == BitMap64([6, 7, 8])
    Path(shared["location"]).unlink()
    assert deleted_positions([shared], "f3", {}) == BitMap64([9, 10, 11]) and not deleted_positions([shared], "f", {})


def test_files_that_tasks_cannot_read_are_refused(tmp_path: Path) -> None:
    file = written(tmp_path / "a.parquet")
    with pytest.raises(UnreadError, match="has 1000 rows, not 999"):
        list(FileRows({**file, "records": 999}, (ID,), {}))
    other = tmp_path / "a.avro"
    other.write_bytes(b"Obj1" * 9)
    with pytest.raises(UnreadError, match="a.avro"):
        list(FileRows({**file, "location": str(other)}, (ID,), {}))
    with pytest.raises(UnreadError, match="tasks cannot read"):
        list(FileRows({**file, "location": "gs://bucket/a.parquet"}, (ID,), {}))
    avro = {"location": str(other), "format": "AVRO", "offset": None, "length": None}
    with pytest.raises(UnreadError, match="a.avro"):
        list(FileRows({**file, "deletes": [avro]}, (ID,), {}))


# values that are stored once are no less in memory; bounds show the length of short ones
@pytest.mark.parametrize(
    ("kind", "value", "in_dictionary", "bounds"),
    [
        ("string", "x" * 10_000, False, True),
        ("string", "x" * 10_000, True, True),
        ("string", "x" * 500, True, True),
        ("string", "x" * 50, True, True),
        ("string", "x" * 50, True, False),
        ("decimal(38, 2)", Decimal("1.25"), True, True),
    ],
)
def test_rows_are_read_in_batches(tmp_path: Path, kind: str, value: Any, in_dictionary: bool, bounds: bool) -> None:
    column = ReadColumn(1, "c", kind, False)
    rows = 150_000_000 // (len(value) if isinstance(value, str) else 16)
    values = pa.DictionaryArray.from_arrays(
        pa.repeat(0, rows), pa.array([value], column.field().type)
    ).dictionary_decode()
    table = pa.table([values], schema=pa.schema([column.field()]))
    place = tmp_path / "a.parquet"
    pq.write_table(table, place, use_dictionary=in_dictionary, write_statistics=bounds, row_group_size=rows)
    file = written(tmp_path / "b.parquet") | {"location": str(place), "records": rows}
    sizes = [each.nbytes for each in FileRows(file, (column,), {})]
    assert len(sizes) > 3 and max(sizes) < 50 * 1024**2


def in_orc(place: Path, columns: Mapping[str, tuple[pa.Array, Mapping[str, str]]], records: int) -> dict[str, Any]:
    """Write an ORC file with the attributes of an Iceberg writer; return its description for tasks."""
    fields = [pa.field(name, array.type, metadata=attributes) for name, (array, attributes) in columns.items()]
    table = pa.table([array for array, _ in columns.values()], schema=pa.schema(fields))
    orc.write_table(table, place, stripe_size=64 * 1024, batch_size=1000)
    facts = {"location": str(place), "records": records, "first_row_id": 5000, "sequence_number": 7}
    return {**facts, "constants": None, "deletes": []}


def test_ranges_of_orc_files_contain_their_live_rows(tmp_path: Path) -> None:
    numbers = [(number * 2_654_435_761) % 2**40 for number in range(60_000)]
    file = in_orc(tmp_path / "a.orc", {"id": (pa.array(numbers), {"iceberg.id": "1"})}, len(numbers))
    assert orc.ORCFile(file["location"]).nstripes > 3
    file["deletes"] = [vector(tmp_path, file["location"], [0, 29_999, 30_001])]
    for begin, end in ((0, 60_000), (30_000, 59_999), (7, 8), (29_999, 30_000)):
        reading = FileRows(file, (ID,), {}, lineage=True, begin=begin, end=end)
        tables = list(reading)
        live = [place for place in range(begin, end) if place not in (0, 29_999, 30_001)]
        assert [row for table in tables for row in table["id"].to_pylist()] == [numbers[place] for place in live]
        assert [row for table in tables for row in table[ROW_ID].to_pylist()] == [5000 + place for place in live]
        assert reading.rows + reading.deleted == end - begin


def test_orc_attributes_define_the_types(tmp_path: Path) -> None:
    moment = pa.array([1_577_934_245_123_456_000], pa.timestamp("ns", "UTC"))
    kinds: dict[str, tuple[pa.Array, dict[str, str], Any]] = {
        "timestamptz": (moment, {"iceberg.timestamp-unit": "MICROS"}, datetime(2020, 1, 2, 3, 4, 5, 123_456, UTC)),
        "timestamptz_ns": (moment, {"iceberg.timestamp-unit": "NANOS"}, datetime(2020, 1, 2, 3, 4, 5, 123_456, UTC)),
        "time": (pa.array([7]), {"iceberg.long-type": "TIME"}, time(microsecond=7)),
        "uuid": (pa.array([b"\xff" * 16]), {"iceberg.binary-type": "UUID"}, UUID(int=2**128 - 1)),
        "fixed[2]": (pa.array([b"ab"]), {"iceberg.binary-type": "FIXED", "iceberg.length": "2"}, b"ab"),
    }
    for number, (kind, (array, attributes, expected)) in enumerate(kinds.items()):
        column, attributes = ReadColumn(1, "c", kind, False), attributes | {"iceberg.id": "1"}
        (table,) = FileRows(in_orc(tmp_path / f"{number}.orc", {"c": (array, attributes)}, 1), (column,), {})
        assert table.schema == pa.schema([column.field()]) and table["c"].to_pylist() == [expected]


def test_ambiguous_orc_files_are_left_to_iceberg(tmp_path: Path) -> None:
    bare = in_orc(tmp_path / "bare.orc", {"id": (pa.array([1]), {})}, 1)
    with pytest.raises(UnreadError, match="no field ids"):
        list(FileRows(bare, (ID,), {}, name_mapping='[{"field-id": 1, "names": ["id"]}]'))
    nanos = pa.array([1], pa.timestamp("ns"))
    odd = in_orc(tmp_path / "odd.orc", {"c": (nanos, {"iceberg.id": "1"})}, 1)
    with pytest.raises(UnreadError, match="would lose data"):
        list(FileRows(odd, (ReadColumn(1, "c", "timestamp", False),), {}))
    with pytest.raises(UnreadError, match="none of the columns"):
        list(FileRows(odd, (ReadColumn(2, "c", "timestamp", False),), {}))
