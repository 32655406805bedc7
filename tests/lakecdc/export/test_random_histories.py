"""Random histories of a table against a plain model: changes between any two snapshots, and replayed exports."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lakecdc import changes
from lakecdc.export.job import export_changes
from lakecdc.maintain.compact import compact_data_files
from lakecdc.maintain.delete_files.job import rewrite_delete_files
from lakecdc.maintain.manifests import rewrite_manifests
from lakecdc.maintain.rollback import rollback_tables
from lakecdc.maintain.sort import sort_data_files
from lakecdc.runtime.run import TableWork
from tests.conftest import Lake
from tests.lakecdc.maintain.support import append, create, delete_by_key, head, run
from tests.readers import duckdb_connection
from tests.versions import V3

#: id, v, d, and w, which is added later
Row = tuple[Any, ...]
State = dict[int, Row]
Changes = Counter[tuple[Any, ...]]
MAINTENANCE: tuple[tuple[TableWork, dict[str, Any]], ...] = (
    (rewrite_delete_files, {}),
    (compact_data_files, {"min_input_files": 2}),
    (sort_data_files, {"columns": ["id"]}),
    (rewrite_manifests, {"min_manifests": 2}),
)


class History:
    """A table with random commits, and its rows after each of them.

    :param version: Iceberg format version.
    """

    def __init__(self, lake: Lake, version: int, seed: int) -> None:
        merge_on_read = {f"write__{what}__mode": "merge-on-read" for what in ("update", "merge")}
        self.lake, self.name = lake, create(lake, version, **merge_on_read)
        lake.sql(f"ALTER TABLE lake.{self.name} SET IDENTIFIER FIELDS id")
        self.random = random.Random(seed)
        self.rows: State = {}
        self.states: list[tuple[int, State]] = []
        self._steps = 0
        self.append()

    def step(self, number: int) -> None:
        """Commit a random change, sometimes followed by maintenance."""
        ways = (self.upsert, self.update, self.delete_by_key, self.change_keys, self.delete, self.merge, self.append)
        self._steps += 1
        ways[number % len(ways)](self.random.sample(range(40), 5))
        self._record_state()
        if self.random.random() < 0.4:
            work, options = MAINTENANCE[self.random.randrange(len(MAINTENANCE))]
            run(self.lake, work, self.name, **options)
            self._record_state()

    def append(self, _: Iterable[int] = ()) -> None:
        low = 100 * (self._steps + 1)
        append(self.lake, self.name, low, low + 20)
        self._put(range(low, low + 20), "old")
        self._record_state()

    def upsert(self, ids: list[int]) -> None:
        delete_by_key(self.lake, self.name, ids, f"upsert{self._steps}-")
        self._put(ids, f"upsert{self._steps}-")

    def delete_by_key(self, ids: list[int]) -> None:
        delete_by_key(self.lake, self.name, ids)
        self.rows = {i: row for i, row in self.rows.items() if i not in ids}

    def update(self, ids: list[int]) -> None:
        self._sql("UPDATE {} SET v = {text} WHERE id IN ({ids})", ids)
        self.rows |= {i: (i, self._text, *self.rows[i][2:]) for i in ids if i in self.rows}

    def change_keys(self, ids: list[int]) -> None:
        by = 10_000 * self._steps
        self._sql(f"UPDATE {{}} SET id = id + {by} WHERE id IN ({{ids}})", ids)
        moved = {i + by: (i + by, *self.rows[i][1:]) for i in ids if i in self.rows}
        self.rows = {i: row for i, row in self.rows.items() if i not in ids} | moved

    def delete(self, ids: list[int]) -> None:
        self._sql("DELETE FROM {} WHERE id IN ({ids})", ids)
        self.rows = {i: row for i, row in self.rows.items() if i not in ids}

    def merge(self, ids: list[int]) -> None:
        self._sql(
            "MERGE INTO {} t USING (SELECT explode(array({ids})) id) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET v = {text} WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, {text})",
            ids,
        )
        self.rows |= {i: (i, self._text, *self.rows.get(i, (i, None, None, None))[2:]) for i in ids}

    def add_column(self) -> None:
        self.lake.sql(f"ALTER TABLE lake.{self.name} ADD COLUMN w int")
        self.lake.sql(f"UPDATE lake.{self.name} SET w = 1 WHERE id < 20")
        self.rows = {i: (*row[:3], 1) if i < 20 else row for i, row in self.rows.items()}
        self._record_state()

    def roll_back(self) -> None:
        snapshot, rows = self.states[-3]
        run(self.lake, rollback_tables, self.name, to=str(snapshot))
        self.rows = dict(rows)
        self._record_state()

    @property
    def _text(self) -> str:
        return f"step{self._steps}"

    def _sql(self, statement: str, ids: list[int]) -> None:
        named = {"text": f"'{self._text}'", "ids": ", ".join(map(str, ids))}
        self.lake.sql(statement.format(f"lake.{self.name}", **named))

    def _put(self, ids: Iterable[int], text: str) -> None:
        self.rows |= {i: (i, f"{text}{i}", i % 2, None) for i in ids}

    def _record_state(self) -> None:
        self.states.append((head(self.lake, self.name), dict(self.rows)))


def expected(before: State, after: State) -> Changes:
    """Return the changes between two states of the model."""
    difference = Changes()
    for key in before.keys() | after.keys():
        old, new = before.get(key), after.get(key)
        if old != new and old:
            difference["update_before" if new else "delete", *old] += 1
        if old != new and new:
            difference["update_after" if old else "insert", *new] += 1
    return difference


def replayed(rows: Mapping[int, Row], given: Changes) -> State:
    """Apply changes to a state; a removed row must exist."""
    left = dict(rows)
    for kind, *row in sorted(given, key=lambda change: change[0] in ("insert", "update_after")):
        if kind in ("delete", "update_before"):
            assert left.pop(row[0]) == tuple(row)
        else:
            assert row[0] not in left
            left[row[0]] = tuple(row)
    return left


def of_envelopes(folder: Path) -> Changes:
    """Count the changes in a folder of envelopes."""
    names = {"c": ("", "insert"), "r": ("", "insert"), "u": ("update_before", "update_after"), "d": ("delete", "")}
    counts = Changes()
    for file in folder.glob("*.jsonl"):
        for envelope in map(json.loads, file.read_text().splitlines()):
            for kind, image in zip(names[envelope["op"]], ("before", "after"), strict=True):
                if kind:
                    row = envelope[image]
                    counts[kind, row["id"], row["v"], row["d"], row.get("w")] += 1
    return counts


class Exports:
    """A chain of exports to a table and to folders, and the rows after their replay."""

    def __init__(self, history: History, folder: Path) -> None:
        self.history, self._folder = history, folder
        self._at: State = {}
        self._replayed: dict[str, State] = {way: {} for way in ("table", "parquet", "debezium-json")}

    def next(self) -> None:
        """Export, and compare each destination with the model."""
        history, name = self.history, self.history.name
        difference, newest = expected(self._at, history.rows), str(head(history.lake, name))
        for way in self._replayed:
            folder = self._folder / way
            given = {"table": f"{name}_changes"} if way == "table" else {"folder": str(folder), "format": way}
            report = run(history.lake, export_changes, name, destinations={name: given}, consumer=way)
            assert report.outcome == "done"
            exported = self._of_table(newest) if way == "table" else self._of_files(way, folder)
            assert exported == difference, way
            self._replayed[way] = replayed(self._replayed[way], exported)
            assert self._replayed[way] == history.rows
        self._at = dict(history.rows)

    def _of_table(self, snapshot: str) -> Changes:
        columns = "_commit_snapshot_id, _change_type, * EXCLUDE (_commit_snapshot_id, _commit_timestamp, _change_type)"
        rows = self.history.lake.duckdb_rows(f"{self.history.name}_changes", columns)
        return Counter((*row[1:], None)[:5] for row in rows if str(row[0]) == snapshot)

    def _of_files(self, way: str, folder: Path) -> Changes:
        newest = max(folder.glob("*/_SUCCESS")).parent
        if way == "debezium-json":
            return of_envelopes(newest)
        columns = "_change_type, * EXCLUDE (_change_type)"
        with duckdb_connection() as connection:
            rows = connection.execute(f"SELECT {columns} FROM '{newest}/*.parquet'").fetchall()
        return Counter((*row, None)[:5] for row in rows)


@V3
def test_random_histories(lake: Lake, version: int, tmp_path: Path) -> None:
    history = History(lake, version, seed=version)
    exports = Exports(history, tmp_path)
    for number, step in enumerate(history.random.sample(range(7), 7) + history.random.sample(range(7), 2)):
        history.step(step)
        if number == 4:
            history.add_column()
        if number == 6:
            history.roll_back()
        if number in (3, 8):
            exports.next()
    for (since, before), (until, after) in (history.random.sample(history.states, 2) for _ in range(2)):
        differences = changes.read(lake.spark, f"lake.{history.name}", since=since, until=until).select(
            "_change_type", "id", "v", "d", "w"
        )
        assert Counter(map(tuple, differences.collect())) == expected(before, after)
