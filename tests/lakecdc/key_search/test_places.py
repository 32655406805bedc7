"""Tasks find the same rows by key as Iceberg's reader, at the same positions."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import pytest
from pyspark.sql import DataFrame

from lakecdc.ingest import lookup
from lakecdc.ingest.lookup import look_up
from tests.conftest import Lake
from tests.lakecdc.maintain.delete_files.support import change, create, insert
from tests.on_demand import on_demand
from tests.versions import V3

_ROW = (
    "CAST({0} AS {1}) id, concat('k', {0} % 5) k, concat('{2}', {0}) v, repeat(md5(string({0})), 20) doc, "
    "named_struct('a', array(int({0}), NULL), 'm', map(string({0}), 1.5BD)) n"
)


def _rows(frame: DataFrame, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.select(*columns).collect()), key=str)


def _random_table(lake: Lake, version: int, key: list[str], rng: random.Random) -> str:
    """Create a table with deletes in every form and schema changes in between."""
    by = "bucket(2, id)" if rng.random() < 0.5 else ""
    mode = {f"write__{what}__mode": "merge-on-read" for what in ("delete", "update")}
    columns = "id int, k string, v string, doc string, n struct<a: array<int>, m: map<string, decimal(2, 1)>>"
    name, kind = create(lake, columns, version, by, write__parquet__row_group_check_min_record_count="1", **mode), "int"
    insert(lake, name, f"SELECT {_ROW.format('id', kind, 'a')} FROM range(60)", files=2)
    for step, what in enumerate(rng.sample(["change", "change", "delete", "delete", "insert", "promote", "add"], 7)):
        some = f"SELECT DISTINCT id FROM VALUES {', '.join(f'({rng.randrange(90)})' for _ in range(9))} AS t(id)"
        if what == "change":
            rows = f"SELECT {_ROW.format('id', kind, f'c{step}_')} FROM ({some})"
            change(lake, name, key, f"SELECT {', '.join(key)} FROM ({rows})", rows if rng.random() < 0.7 else None)
        elif what == "delete":
            lake.sql(f"DELETE FROM lake.{name} WHERE id IN ({some})")
        elif what == "insert":
            insert(lake, name, f"SELECT {_ROW.format('id', kind, 'i')} FROM range(60, 80)")
        elif what == "promote":
            lake.sql(f"ALTER TABLE lake.{name} ALTER COLUMN id TYPE bigint")
            kind = "bigint"
        else:
            lake.sql(f"ALTER TABLE lake.{name} ADD COLUMN later int")
            lake.sql(f"ALTER TABLE lake.{name} DROP COLUMN later")
            lake.sql(f"ALTER TABLE lake.{name} ADD COLUMN later string")
    return name


@pytest.mark.parametrize("seed", on_demand(range(6), in_ci=(1,)))
@pytest.mark.parametrize(
    ("version", "key"), on_demand(product((2, 3), (["id"], ["id", "k"])), in_ci=((2, ["id", "k"]), (3, ["id"])))
)
def test_rows_equal_those_of_icebergs_reader(lake: Lake, version: int, key: list[str], seed: int) -> None:
    rng = random.Random(f"{seed} {key}")
    name = _random_table(lake, version, key, rng)
    table = lake.table(name)
    numbers = ", ".join(f"({rng.randrange(100)})" for _ in range(40))
    keys = lake.sql(f"SELECT DISTINCT id, concat('k', id % 5) k FROM VALUES {numbers} AS t(id)").select(*key)
    snapshots = [snapshot.id for snapshot in table.ancestors()]
    for snapshot_id in (None, snapshots[len(snapshots) // 2]):
        matches = look_up(table, keys, key, snapshot_id)
        expected = lookup._read_keys(table, keys, key, snapshot_id)
        assert matches.places is not None
        assert _rows(matches.rows, expected.columns) == _rows(expected, expected.columns) != []
    matches = look_up(table, keys, key, columns=["v"])
    assert matches.places is not None and matches.rows.columns == [*key, "v"]
    where = ["_file", "_pos", "_row_id" if version == 3 else "CAST(NULL AS bigint) _row_id"]
    marked = table.read(columns=[*key, *where]).join(keys, key, "left_semi")
    rows, states = matches.places.rows.to_pylist(), matches.places.states
    listed = [(states[row["file"]][0], row["position"], row["row_id"]) for row in rows]
    assert sorted(listed, key=str) == _rows(marked, ["_file", "_pos", "_row_id"])


def _by_another_column(lake: Lake, name: str) -> None:
    change(lake, name, ["v"], "SELECT 'a3' v")


def _of_another_format(lake: Lake, name: str) -> None:
    lake.sql("SELECT 100 id, 0.5D f, 'orc' v").writeTo(f"lake.{name}").option("write-format", "orc").append()


UNREAD: dict[str, Callable[[Lake, str], None]] = {"columns": _by_another_column, "format": _of_another_format}


@pytest.mark.parametrize("why", UNREAD)
def test_icebergs_reader_reads_files_that_tasks_cannot_read(lake: Lake, why: str) -> None:
    name = create(lake, "id int, f double, v string", 2)
    insert(lake, name, "SELECT CAST(id AS int) id, id / 2D f, concat('a', id) v FROM range(10)")
    keys = lake.sql("SELECT explode(array(3, 4, 100)) id")
    by_tasks = look_up(lake.table(name), keys, ["id"])
    assert by_tasks.places is not None and _rows(by_tasks.rows, ["v"]) == [("a3",), ("a4",)]
    UNREAD[why](lake, name)
    matches = look_up(lake.table(name), keys, ["id"])
    assert matches.places is None
    assert _rows(matches.rows, ["v"]) == [("a4",)] if why == "columns" else [("a3",), ("a4",), ("orc",)]
    by_float = look_up(lake.table(name), lake.sql("SELECT 2D f"), ["f"])
    assert by_float.places is None and _rows(by_float.rows, ["v"]) == [("a4",)]


@V3
def test_rows_of_additional_keys_are_located_but_not_read(lake: Lake, version: int) -> None:
    name = create(lake, "id int, v string", version)
    insert(lake, name, "SELECT CAST(id AS int) id, concat('a', id) v FROM range(10)")
    table = lake.table(name)
    matches = look_up(table, lake.sql("SELECT 3 id"), ["id"], beside=lake.sql("SELECT explode(array(3, 5, 70)) id"))
    assert _rows(matches.rows, ["id", "v"]) == [(3, "a3")]
    assert matches.places is not None
    assert sorted(matches.places.rows["d0"].to_pylist()) == [3, 5]
    assert sorted(matches.places.keys["d0"].to_pylist()) == [3, 5, 70]
