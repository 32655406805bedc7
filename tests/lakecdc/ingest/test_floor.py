"""Rows below a table's floor are dropped, whatever event brings them, and are counted."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lakecdc.contract.target import Cleaning, Target
from lakecdc.ingest.batch import Batch
from lakecdc.ingest.change import Column, Rows
from lakecdc.ingest.cleaning import cleaned
from lakecdc.ingest.floor import held_against
from lakecdc.metadata.floor import Floor
from lakecdc.metadata.names import EXPIRED_BELOW
from lakecdc.metadata.positions import Position
from tests.conftest import Lake
from tests.lakecdc.ingest.test_cleaning import UNCHANGED, Fed, event
from tests.lakecdc.maintain.support import meanwhile
from tests.on_demand import on_demand

OLD, NEW = "2024-06-30T23:59:59.999999Z", "2024-07-01T00:00:00Z"
COLUMNS = {"id": "bigint", "at": "timestamp", "doc": "string"}


def set_floor(lake: Lake, name: str, day: str = "2024-07-01") -> None:
    table = lake.table(name)
    below = datetime.fromisoformat(day).replace(tzinfo=UTC)
    table.update_properties({EXPIRED_BELOW: Floor(table.field_id("at"), "at", below).encode()})


def row(id: int, at: str | None, doc: str = "x") -> dict[str, Any]:
    return {"id": id, "at": at, "doc": doc}


@pytest.mark.parametrize("mode", on_demand(("upsert", "merge"), in_ci=("upsert",)))
def test_rows_leave_and_return_across_the_floor(lake: Lake, tmp_path: Path, mode: str) -> None:
    fed = Fed(lake, tmp_path, mode=mode, columns=COLUMNS)
    fed.options = {"quarantine_table": lake.new_name("quarantine")}
    first = [row(1, OLD), row(2, NEW), row(3, NEW), row(4, None), row(5, NEW)]
    assert "rows_below_floor" not in fed.done(*[event(n, "c", each) for n, each in enumerate(first, 1)])
    set_floor(lake, fed.target["table"])
    done = fed.done(
        event(11, "u", row(1, NEW, "came back by an update")),
        event(12, "u", row(2, OLD)),
        event(13, "d", {"id": 3}),
        event(14, "c", row(6, OLD)),
        event(15, "c", row(7, NEW)),
        event(16, "c", row(8, None)),
        # an expired row needs none of its omitted values
        event(17, "u", row(9, OLD, UNCHANGED)),
    )
    assert done["rows_below_floor"] == 3 and "quarantined" not in done
    assert [id for (id,) in fed.rows("id")] == [1, 4, 5, 7, 8]
    # a late event does not restore a row that a later one took below the floor
    assert fed.done(event(21, "u", row(5, NEW, "y")), event(9, "u", row(2, NEW)))["rows_below_floor"] == 0
    assert [id for (id,) in fed.rows("id")] == [1, 4, 5, 7, 8]


def test_a_floor_recorded_during_a_batch_applies_to_it(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed = Fed(lake, tmp_path, columns=COLUMNS, history_table=lake.new_name("history"))
    fed.done(event(1, "c", row(1, NEW)))
    meanwhile(monkeypatch, "before_commit", lambda: set_floor(lake, fed.target["table"]))
    done = fed.done(event(2, "c", row(2, OLD)), event(3, "c", row(3, NEW)))
    assert done["rows_below_floor"] == 1 and done["commits"] == 1
    assert fed.rows("id") == [(1,), (3,)]
    # the history keeps past events, once
    history = fed.target["history_table"]
    assert sorted(lake.duckdb_rows(history, "id")) == [(1,), (2,), (3,)]
    # until they expire there as well
    set_floor(lake, history)
    fed.done(event(4, "c", row(4, NEW)), event(5, "c", row(5, OLD)), event(6, "d", row(1, NEW)))
    assert sorted(lake.duckdb_rows(history, "id, _lakecdc_op")) == [
        *((1, op) for op in "cd"),
        *((id, "c") for id in (2, 3, 4)),
    ]


@pytest.mark.soak
def test_an_append_table_has_a_floor(lake: Lake, tmp_path: Path) -> None:
    fed = Fed(lake, tmp_path, mode="append", columns=COLUMNS)
    fed.done(event(1, "c", row(1, OLD)))
    set_floor(lake, fed.target["table"])
    assert fed.done(*[event(n, "c", row(n, at)) for n, at in enumerate((OLD, NEW, None), 2)])["rows_below_floor"] == 1
    assert fed.rows("id") == [(1,), (3,), (4,)]


@pytest.mark.parametrize("kind", on_demand(("timestamp", "timestamp_ntz", "date"), in_ci=("timestamp",)))
def test_a_full_load_omits_rows_below_a_floor_of_any_type(lake: Lake, kind: str) -> None:
    name = lake.new_name("floor")
    lake.sql(f"CREATE TABLE lake.{name} (id bigint NOT NULL, at {kind}, n int) USING iceberg")
    set_floor(lake, name)
    values = "(1, '2024-06-30'), (2, '2024-07-01'), (3, NULL), (4, '2024-07-02')"
    changes = lake.sql(
        "SELECT 'r' AS op, struct(id) AS key, if(false, struct(id), null) AS old_key, '0' AS `order`, "
        f"CAST(NULL AS array<string>) AS open, struct(id, CAST(day AS {kind}) AS At, CAST(id AS int) AS n) AS row "
        f"FROM VALUES {values} AS v(id, day)"
    )
    # the source writes the column differently, and the spec's own filter applies too
    columns = (Column("id", "bigint", True), Column("At", kind), Column("n", "int"))
    target = Target(name, key=("id",), clean=Cleaning(filter="n < 4 OR n > 4"))
    batch = Batch(target, ("id",), columns, Rows(changes), Position("x", "x", {}), full_load=True)
    batch = cleaned(lake.spark, held_against(batch, lake.table(name)))
    assert batch.rows is not None and batch.commit.floor is not None
    assert sorted(row[0] for row in batch.rows.frame.select("key.id").collect()) == [2, 3]
    assert batch.commit.floor.rows() == 1


@pytest.mark.soak
def test_a_floor_of_a_dropped_column_omits_nothing(lake: Lake, tmp_path: Path) -> None:
    fed = Fed(lake, tmp_path, columns=COLUMNS)
    fed.done(event(1, "c", row(1, OLD)))
    table = lake.table(fed.target["table"])
    table.update_properties({EXPIRED_BELOW: Floor(99, "at", datetime(2030, 1, 1, tzinfo=UTC)).encode()})
    assert fed.done(event(2, "c", row(2, OLD)))["rows_below_floor"] == 0
    table.refresh().update_properties({EXPIRED_BELOW: "[]"})
    report = fed.run(event(3, "c", row(3, OLD))).tables[0]
    assert report.failure_class == "bad input" and EXPIRED_BELOW in str(report.reason)
    assert fed.rows("id") == [(1,), (2,)]
