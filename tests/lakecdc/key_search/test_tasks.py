"""Comparison of keys by tasks, and keys in parts, without Spark."""

from __future__ import annotations

import datetime
import itertools
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakecdc.iceberg.live_deletes import EqualityDelete
from lakecdc.key_search.keys import key_ranges
from lakecdc.key_search.row_ids import sent_to_tasks
from lakecdc.key_search.tasks import Lookup, SearchTask, Stored, packed, read_keys, rows_among, searched_keys, unpacked
from lakecdc.model.iceberg_columns import arrow_field
from lakecdc.reader.projection import ReadColumn
from lakecdc.writer.deletes import Target, count_only

# few values of each type, so that many are equal
VALUES: dict[pa.DataType, list[Any]] = {
    pa.int64(): [-1, 0, 2**40, None],
    pa.string(): ["", "a", "é", None],
    pa.binary(): [b"", b"\x00", b"\xff", None],
    pa.binary(2): [b"\x00\xff", b"ab", None],
    pa.decimal128(12, 2): [Decimal("1.50"), Decimal("-1.50"), None],
    pa.date32(): [datetime.date(1, 1, 1), datetime.date(2024, 2, 29), None],
    pa.timestamp("us", "UTC"): [-1, 1, None],
    pa.timestamp("ns"): [-1, 1, None],
    pa.time64("us"): [0, 86_399_999_999, None],
    pa.bool_(): [True, False, None],
}


@given(st.data())
def test_a_row_matches_a_key_if_all_values_are_equal_and_null_equals_null(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=4))
    one = st.tuples(*[st.sampled_from(VALUES[kind]) for kind in kinds])
    rows, keys = data.draw(st.lists(one, max_size=30)), data.draw(st.lists(one, min_size=1, max_size=20))

    def columns(values: list[tuple[Any, ...]]) -> list[pa.ChunkedArray]:
        half = len(values) // 2
        parts = values[:half], values[half:]
        return [
            pa.chunked_array([pa.array([value[place] for value in part], kind) for part in parts])
            for place, kind in enumerate(kinds)
        ]

    names = [f"d{place}" for place in range(len(kinds))]
    positions = rows_among(columns(rows), pa.table(dict(zip(names, columns(keys), strict=True))))
    assert positions.tolist() == [place for place, row in enumerate(rows) if row in keys]


@pytest.mark.parametrize("most", [1, 4, 5, 100])
def test_each_key_is_in_one_part(most: int) -> None:
    sizes = [3, 0, 5, 12, 1]
    deletes = [EqualityDelete(None, 0, f"f{place}", 0, None, 1, size, (1,)) for place, size in enumerate(sizes)]
    parts = list(key_ranges(deletes, most))
    ranges = [(delete.location, begin, end) for part in parts for delete, begin, end in part]
    for delete in deletes:
        (first, *_), *rest = of_file = [(begin, end) for name, begin, end in ranges if name == delete.location]
        # rows beyond the recorded count are also read
        assert first == 0 and of_file[-1][1] is None
        assert all(before[1] == after[0] for before, after in itertools.pairwise(of_file))
        assert len(rest) <= delete.records
    counts = [sum((d.records if end is None else end) - begin for d, begin, end in part) for part in parts]
    assert sum(counts) == sum(sizes) and max(counts) <= most and counts[:-1] == [most] * (len(counts) - 1)


ID = (ReadColumn(1, "id", "long", True),)


@pytest.fixture
def file(tmp_path: Path) -> dict[str, Any]:
    """Describe a file with the ids 0 … 999 in row groups of 300 rows, as tasks get it."""
    place = tmp_path / "a.parquet"
    pq.write_table(pa.table([range(1000)], schema=pa.schema([arrow_field(1, "id", "long", True)])), place, 300)
    known = {"number": 7, "location": str(place), "scope": 1, "sequence_number": 1, "first_row_id": 5000}
    return {**known, "records": 1000, "deletes": [], "known_positions": None, "parts": None}


@pytest.mark.parametrize("ends", [[], [10], [300, 600], [1, 299, 301, 950]])
def test_ranges_of_a_delete_file_contain_each_key_once(file: dict[str, Any], ends: list[int]) -> None:
    ids_by_range = []
    for begin, end in itertools.pairwise([0, *ends, None]):
        of_range = {**file, "reach": 1, "deleted_at": 9, "begin": begin, "end": end}
        ids_by_range.append([key for table in read_keys(of_range, ID, {}) for key in table["d0"].to_pylist()])
    assert [keys[0] for keys in ids_by_range] == [0, *ends] and sum(ids_by_range, []) == list(range(1000))


class Sent:
    """Keys as tasks get them, with a count of how often they were unpacked."""

    def __init__(self, *keys: int) -> None:
        self._packed = packed([searched_keys([pa.chunked_array([pa.array(keys, pa.int64())])])], ID)
        self.reads = 0

    @property
    def value(self) -> bytes:
        self.reads += 1
        return self._packed


@pytest.mark.parametrize(("part_numbers", "positions"), [(None, [1, 5, 400, 900]), ([1], [5, 900]), ([], [])])
def test_a_file_reads_only_its_parts_of_the_keys_and_each_once(
    file: dict[str, Any], part_numbers: list[int] | None, positions: list[int]
) -> None:
    parts = Sent(1, 5, 400, 2000), Sent(5, 900)
    task = SearchTask((Lookup(ID, parts),), Stored({}), Target("", {}, {}), count_only, with_rows=True)
    row = {**file, "parts": None if part_numbers is None else [part_numbers]}
    if positions == []:
        # no file is opened
        row["location"] = "/nowhere"
    results = [one for batch in task([pa.RecordBatch.from_pylist([row])]) for one in batch.to_pylist()]
    assert [result["unread"] for result in results if result["unread"]] == []
    # a row whose key is in both parts is returned once
    rows = [unpacked(result["hit_rows"]) for result in results if result["hit_rows"]]
    assert sorted(position for table in rows for position in table["position"].to_pylist()) == positions
    assert [part.reads for part in parts] == [int(part_numbers is None or number in part_numbers) for number in (0, 1)]


def test_row_ids_of_uuids_are_not_sent() -> None:
    rows: Any = pa.table({"d0": pa.array([b"0" * 16], pa.binary(16)), "row_id": [1]})
    table: Any = None
    with sent_to_tasks(table, {"u": ReadColumn(1, "u", "uuid", True)}, [rows]) as ids:
        assert ids is None
