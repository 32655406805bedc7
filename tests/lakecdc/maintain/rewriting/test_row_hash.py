"""The hash of rows does not depend on order or reader; each value and each position counts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakecdc.maintain.rewriting.row_hash import RowHash, summed
from lakecdc.reader.projection import UnreadError

ROWS = pa.table(
    {
        'odd " name': ["a", None, "b"],
        "number": pa.array([1, 2, None], pa.int64()),
        "real": [1.5, float("nan"), -2.0],
        "price": pa.array([1, 2, 3]).cast(pa.decimal128(21, 2)),
        "long_price": pa.array([1, 2, None]).cast(pa.decimal128(38, 2)),
        "at": pa.array([1, 2, 3], pa.timestamp("us", "UTC")),
        "local": pa.array([1, 2, 3], pa.timestamp("us")),
        "day": pa.array([1, None, 3], pa.date32()),
        "raw": pa.array([b"x", b"", None]),
        "nano": pa.array([1, None, 3], pa.timestamp("ns")),
        "time": pa.array([1, None, 3], pa.time64("us")),
        "uuid": pa.array([b"x" * 16, None, b"\xff" * 16], pa.uuid()),
        "fixed": pa.array([b"xx", None, b"yy"], pa.binary(2)),
        "yes": [True, False, None],
        "list": [[1, None], None, []],
        "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int32())),
        "struct": pa.array([{"x": 1}, None, {"x": None}]),
    }
)


def listed(values: pa.Array) -> pa.Array:
    """Put each value into a list."""
    return pa.ListArray.from_arrays(pa.array(range(len(values) + 1), pa.int32()), values)


def mapped(values: pa.Array) -> pa.Array:
    """Put each value into a map."""
    return pa.MapArray.from_arrays(range(len(values) + 1), pa.array(["k"] * len(values)), values)


@pytest.mark.parametrize("columns", [*([name] for name in ROWS.column_names), ROWS.column_names], ids=str)
def test_duckdb_and_arrow_hash_a_file_equally(columns: list[str], tmp_path: Path) -> None:
    path = str(tmp_path / "it's.parquet")
    pq.write_table(ROWS, path, store_decimal_as_integer=True)
    one = RowHash(columns)
    assert one.of(ROWS) == one.of_file(path, pq.read_schema(path)) == one.of(ROWS.take([2, 0, 1]))
    assert one.of(ROWS) == summed([one.of(ROWS.slice(0, 1)), one.of(ROWS.slice(1))])
    others = [ROWS.slice(1), pa.concat_tables([ROWS, ROWS.slice(0, 1)]), pa.concat_tables([ROWS.slice(1)] * 2)]
    assert len({one.of(ROWS), *map(one.of, others)}) == 4


def test_swapped_columns_change_the_hash() -> None:
    rows = pa.table({"a": [1, None], "b": [None, 1]})
    assert RowHash(["a", "b"]).of(rows.slice(0, 1)) != RowHash(["a", "b"]).of(rows.slice(1))
    assert RowHash([]).of(rows) == 0


@pytest.mark.parametrize(
    "values",
    [
        pa.array([None, [], [None]], pa.list_(pa.int32())),
        pa.array([[[1], [2]], [[1, 2]], [[1, 2], []], [[], [1, 2]], [[1, 2], None], [[2], [1]]]),
        pa.array([[None, 1], [1, None], [1], [None], []], pa.list_(pa.int32())),
        pa.array([[{"x": None}], [None], [], None, [{"x": 1}]], pa.list_(pa.struct({"x": pa.int32()}))),
        pa.array([{"a": [], "b": None}, {"a": None, "b": []}], pa.struct(dict.fromkeys("ab", pa.list_(pa.int32())))),
        pa.array([[("k", [])], [("k", None)], [("k", [None])], []], pa.map_(pa.string(), pa.list_(pa.int32()))),
        pa.array([None, {"x": None}], pa.struct({"x": pa.int32()})),
        pa.array([None, []], pa.map_(pa.string(), pa.int32())),
    ],
    ids=lambda values: str(values.type),
)
def test_empty_values_and_nulls_have_different_hashes(values: pa.Array) -> None:
    rows = pa.table({"a": values})
    assert len({RowHash(["a"]).of(rows.slice(n, 1)) for n in range(len(values))}) == len(values)


def test_invalid_texts_are_read_by_arrow(tmp_path: Path) -> None:
    path, rows = str(tmp_path / "a.parquet"), pa.table({"a": pa.array([b"\xff\xfe"]).view(pa.string())})
    pq.write_table(rows, path)
    assert RowHash(["a"]).of_file(path, rows.schema) is None and RowHash(["a"]).of(rows)
    twice = pa.MapArray.from_arrays([0, 2], ["k", "k"], [1, 2])
    with pytest.raises(UnreadError, match="cannot be hashed"):
        RowHash(["a"]).of(pa.table({"a": twice}))


@pytest.mark.parametrize("nested", [lambda a: a, lambda a: pa.StructArray.from_arrays([a], ["x"]), listed, mapped])
def test_nanoseconds_in_utc_are_hashed_exactly(nested: Callable[[pa.Array], pa.Array], tmp_path: Path) -> None:
    one, other = (pa.table({"a": nested(pa.array([n, None], pa.timestamp("ns", "UTC")))}) for n in (1, 2))
    assert RowHash(["a"]).of(one) != RowHash(["a"]).of(other)
    # DuckDB reads microseconds
    path = str(tmp_path / "a.parquet")
    pq.write_table(one, path)
    assert RowHash(["a"]).of_file(path, pq.read_schema(path)) is None


def test_uuids_have_the_hash_of_their_text() -> None:
    values = [b"x" * 16, None, b"\xff" * 16]
    texts = pa.array([value and str(UUID(bytes=value)) for value in values])
    for nested in (lambda a: a, lambda a: pa.StructArray.from_arrays([a], ["x"]), listed, mapped):
        ours, theirs = (pa.table({"a": nested(a), "b": [1, 2, 3]}) for a in (pa.array(values, pa.uuid()), texts))
        of_spark = RowHash(["a", "b"], [ours.schema.field("a")])
        assert of_spark.of(theirs) == RowHash(["a", "b"]).of(ours) != of_spark.of(theirs.take([1, 1, 0]))


def test_folder_names_do_not_become_columns(tmp_path: Path) -> None:
    folder = tmp_path / "a=7"
    folder.mkdir()
    rows = pa.table({"a": ["x"]})
    pq.write_table(rows, folder / "a.parquet")
    assert RowHash(["a"]).of_file(str(folder / "a.parquet"), rows.schema) == RowHash(["a"]).of(rows)
