"""The hash of rows does not depend on their order, nor on who reads them; each value and each place counts."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakecdc.maintain.rewriting.row_hash import RowHash, summed

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
        "fixed": pa.array([b"xx", None, b"yy"], pa.binary(2)),
        "yes": [True, False, None],
        "list": [[1, None], None, []],
        "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int32())),
        "struct": pa.array([{"x": 1}, None, {"x": None}]),
    }
)


@pytest.mark.parametrize("columns", [*([name] for name in ROWS.column_names), ROWS.column_names], ids=str)
def test_duckdb_reads_from_a_file_what_arrow_has_written(columns: list[str], tmp_path: Path) -> None:
    path = str(tmp_path / "it's.parquet")
    pq.write_table(ROWS, path, store_decimal_as_integer=True)
    one = RowHash(columns)
    assert one.of(ROWS) == one.of_file(path) == one.of(ROWS.take([2, 0, 1]))
    assert one.of(ROWS) == summed([one.of(ROWS.slice(0, 1)), one.of(ROWS.slice(1))])
    others = [ROWS.slice(1), pa.concat_tables([ROWS, ROWS.slice(0, 1)]), pa.concat_tables([ROWS.slice(1)] * 2)]
    assert len({one.of(ROWS), *map(one.of, others)}) == 4


def test_columns_do_not_change_places() -> None:
    rows = pa.table({"a": [1, None], "b": [None, 1]})
    assert RowHash(["a", "b"]).of(rows.slice(0, 1)) != RowHash(["a", "b"]).of(rows.slice(1))
    assert RowHash([]).of(rows) == 0
