"""Tasks drop the same events before a TRUNCATE as the SQL does."""

from __future__ import annotations

import duckdb
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lakecdc.ingest.engine.layout import ORDER_PARTS, without_void
from lakecdc.model.order import RANK_CHANGE, RANK_READ, order_key, void_sql

RANKS = st.sampled_from([RANK_READ, RANK_CHANGE])
PLACES = st.tuples(
    st.sampled_from([0, 1, 2, 2**64 - 1]), st.integers(0, 1), RANKS, st.integers(0, 3), st.integers(0, 1)
)
TYPES = (pa.uint64(), pa.int64(), pa.int8(), pa.int64(), pa.int64())


@given(places=st.lists(PLACES, min_size=1, max_size=30), truncate=PLACES, rejected=st.booleans())
@settings(max_examples=100, deadline=None)
def test_tasks_and_sql_drop_the_same_events(
    places: list[tuple[int, ...]], truncate: tuple[int, ...], rejected: bool
) -> None:
    columns = {
        name: pa.array(part, kind)
        for name, part, kind in zip(ORDER_PARTS, zip(*places, strict=True), TYPES, strict=True)
    }
    columns["rejected"] = pa.array(["a rule" if rejected else None] * len(places), pa.string())
    filtered = without_void(pa.RecordBatch.from_pydict(columns), order_key(1, *truncate))
    table = pa.table({"order": [order_key(1, *place) for place in places], "place": range(len(places))})
    # DuckDB spells it with an underscore
    void = void_sql('"order"', order_key(1, *truncate)).replace("startswith", "starts_with")
    sql = f"SELECT place FROM parts WHERE {rejected} OR NOT {void} ORDER BY place"
    with duckdb.connect() as connection:
        stays = [place for (place,) in connection.register("parts", table).execute(sql).fetchall()]
    expected = pa.RecordBatch.from_pydict(columns).take(pa.array(stays, pa.int64()))
    assert filtered.equals(expected)
