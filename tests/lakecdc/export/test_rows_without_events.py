"""Exports of rows that were removed or added without source events: expiry, erasure and full loads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakecdc.contract.errors import InputError
from lakecdc.contract.report import TableReport
from lakecdc.erase.job import erase_rows
from lakecdc.export.job import export_changes
from lakecdc.ingest.batch import CommitPlan
from lakecdc.maintain.expire_partitions import expire_partitions
from lakecdc.metadata.consumers import read_consumers
from tests.conftest import Lake
from tests.lakecdc.erase.test_beside_ingestion import in_order
from tests.lakecdc.ingest.apply.support import Loads
from tests.lakecdc.ingest.test_cleaning import Fed, event
from tests.lakecdc.maintain.support import head, run

OLD, NEW, NEWER = (f"2024-0{month}-01T00:00:00Z" for month in (1, 2, 3))
#: kind, id, day of ``at``, whether the change has an order key
Change = tuple[str, int, str, bool]


class Exports:
    """A table with a history table, exported as net changes and as steps, each with its own consumer."""

    def __init__(self, lake: Lake, name: str) -> None:
        self.lake, self.name = lake, name
        self.places = {"net": f"{name}_net", "steps": f"{name}_steps"}

    def next(self, way: str, **options: Any) -> TableReport:
        history = {self.name: f"{self.name}_history"} if way == "steps" else {}
        given = {
            "destinations": {self.name: {"table": self.places[way]}},
            "history_tables": history,
            "consumer": way,
            **options,
        }
        return run(self.lake, export_changes, self.name, **given)

    def consumers(self) -> dict[str, int]:
        """Return the last snapshot that each consumer has read."""
        consumers = read_consumers(self.lake.table(self.name).properties)
        return {name: consumer.snapshot_id for name, consumer in consumers.items()}

    def exported(self, way: str) -> list[Change]:
        """Return the newest export."""
        columns = "_change_type, id, strftime(\"at\", '%m'), _lakecdc_order IS NOT NULL, _commit_snapshot_id"
        rows = self.lake.duckdb_rows(self.places[way], columns)
        return sorted(row[:4] for row in rows if row[4] == head(self.lake, self.name))


def fed(fed: Fed, *rows: tuple[int, int, str]) -> None:
    """Feed one run of updates.

    :param rows: lsn, id and time.
    """
    fed.done(*[event(lsn, "u", {"id": id, "at": at}) for lsn, id, at in rows])


def test_expired_and_erased_rows_are_exported_as_deletes(lake: Lake, tmp_path: Path) -> None:
    name = lake.new_name("removed")
    source = Fed(
        lake, tmp_path, table=name, columns={"id": "bigint", "at": "timestamp"}, history_table=f"{name}_history"
    )
    fed(source, (1, 1, OLD), (2, 5, OLD))
    fed(source, (3, 2, NEW), (4, 3, NEW), (5, 4, NEW))
    exports = Exports(lake, name)
    for way in exports.places:
        assert exports.next(way).metrics["changes"] == {"insert": 5}

    assert run(lake, expire_partitions, name, time_column="at", older_than="2024-01-15").outcome == "done"
    # the first has an event below the floor, which ingestion skips
    fed(source, (6, 1, OLD), (7, 2, NEWER))
    for way in exports.places:
        assert exports.next(way).outcome == "done"
    update = [("update_after", 2, "03", True), ("update_before", 2, "02", True)]
    assert exports.exported("steps") == [("delete", 1, "01", True), ("delete", 5, "01", False), *update]
    net = [("delete", 1, "01", True), ("delete", 5, "01", True), update[0], update[1]]
    assert exports.exported("net") == net

    def erase(key: int) -> None:
        lake.sql(f"CREATE OR REPLACE TABLE lake.{name}_keys USING iceberg AS SELECT {key}L AS id")
        beside = {"history_tables": {name: f"{name}_history"}, "further_tables": {name: [*exports.places.values()]}}
        with pytest.raises(InputError, match="pinned by .*consumer steps of"):
            run(lake, erase_rows, name, keys_table=f"{name}_keys", drop_consumers=["net"], **beside)
        report = run(lake, erase_rows, name, keys_table=f"{name}_keys", drop_consumers=["*"], **beside)
        assert (report.outcome, exports.consumers()) == ("done", {}), report.reason

    # exported changes are erased with the row, so that no later export repeats them
    erase(3)
    assert exports.next("net").metrics["rows_erased"] == 1
    assert (exports.next("net").outcome, exports.next("net", dry_run=True).outcome) == ("nothing", "nothing")
    fed(source, (8, 4, NEWER), (9, 3, NEWER))
    for way in exports.places:
        report = exports.next(way)
        assert (report.outcome, report.metrics.get("rows_erased")) == ("done", 1 if way == "steps" else None)
        after = [("insert", 3, "03", True), ("update_after", 4, "03", True), ("update_before", 4, "02", True)]
        assert exports.exported(way) == after
    assert exports.consumers() == dict.fromkeys(exports.places, head(lake, name))

    fed(source, (10, 2, NEW))
    erase(4)
    with pytest.raises(InputError, match="has expired, so the changes after it"):
        exports.next("steps")


def test_a_full_load_is_exported_as_net_changes_and_steps_resume_after_it(lake: Lake) -> None:
    loads = Loads(lake)
    exports = Exports(lake, loads.target.table)

    def exported() -> list[tuple[Any, ...]]:
        rows = lake.duckdb_rows(exports.places["steps"], "_change_type, id, v, _commit_snapshot_id")
        return sorted(row[:3] for row in rows if row[3] == head(lake, exports.name))

    loads.feed(loads.batch(1, {1: "a", 2: "a"}))
    assert exports.next("steps").metrics["changes"] == {"insert": 2}
    loads.feed(in_order(loads.batch(2, {2: "b"}, full_load=False)))
    loads.feed(replace(loads.batch(3, {1: "a", 3: "c"}), commit=CommitPlan(replaces=True)))
    with pytest.raises(InputError, match="fully reloaded in between"):
        exports.next("steps")
    assert exports.next("steps", history_tables={}).outcome == "done"
    # which has a different order
    anew = [("update_after", 1, "a"), ("update_before", 1, "a")]
    assert exported() == [("delete", 2, "a"), ("insert", 3, "c"), *anew]
    loads.feed(in_order(loads.batch(4, {1: "d"}, full_load=False)))
    assert exports.next("steps").outcome == "done"
    assert exported() == [("update_after", 1, "d"), ("update_before", 1, "a")]
