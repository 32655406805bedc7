"""Tables are rolled back with their history tables and positions, and fed again."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lakecdc.contract.errors import ConflictError, InputError
from lakecdc.contract.report import TableReport
from lakecdc.iceberg.refs import change_refs, read_refs
from lakecdc.maintain.compact import compact_data_files
from lakecdc.maintain.expire_partitions import expire_partitions
from lakecdc.maintain.rollback import rollback_tables
from lakecdc.maintain.start_tag import start_tag
from lakecdc.metadata import lease as length
from lakecdc.metadata.names import POSITIONS_TAG
from tests.conftest import Lake
from tests.lakecdc.ingest.apply.support import EVENT_COLUMNS, Feed, event_rows, final_rows, in_batches
from tests.lakecdc.ingest.histories import History
from tests.lakecdc.maintain.support import append, create, duckdb_rows, head, metadata_location, run


def fed(lake: Lake, folder: Path) -> tuple[Feed, str]:
    name = lake.new_name("rolled")
    return Feed(lake, folder, {"history_table": f"{name}_history"}, table=name), f"{name}_history"


def read_both(lake: Lake, name: str) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Read the rows of a table and its history table with DuckDB."""
    own, log = lake.duckdb_rows(name), lake.duckdb_rows(f"{name}_history", "_lakecdc_order, _lakecdc_op")
    return sorted(own, key=str), sorted(log)


def back(lake: Lake, name: str, to: object, **options: Any) -> TableReport:
    return run(lake, rollback_tables, name, to=str(to), history_tables={name: f"{name}_history"}, **options)


def test_a_table_is_rolled_back_with_its_history_and_fed_again(lake: Lake, tmp_path: Path) -> None:
    feed, log = fed(lake, tmp_path)
    history = History.of(5, 60)
    batches = in_batches(history, 15, 30)
    for events in batches[:2]:
        feed.take(events)
    then, snapshot = read_both(lake, feed.table), head(lake, feed.table)
    for table in (feed.table, log):
        # not a batch: it belongs to the state that it was made from
        run(lake, compact_data_files, table, min_input_files=2)
    feed.take(batches[2])
    after, newest = read_both(lake, feed.table), head(lake, feed.table)

    assert back(lake, feed.table, snapshot, dry_run=True).metrics["snapshots_undone"] > 0
    assert read_both(lake, feed.table) == after
    report = back(lake, feed.table, snapshot)
    assert (report.outcome, report.metrics["tables_moved"]) == ("done", [feed.table, log])
    assert report.metrics["next_ingestion"].startswith("continues from")
    assert read_both(lake, feed.table) == then
    refs, undone = read_refs(lake.table(feed.table)), report.metrics["kept_as"]
    assert (refs[undone].snapshot_id, refs[POSITIONS_TAG].snapshot_id) == (newest, snapshot)
    assert back(lake, feed.table, snapshot).outcome == "nothing"

    # the rollback is undone: the history is found by its tag
    assert back(lake, feed.table, undone).metrics["tables_moved"] == [feed.table, log]
    assert read_both(lake, feed.table) == after

    back(lake, feed.table, snapshot)
    assert feed.run().outcome == "done", "later events are read again"
    assert read_both(lake, feed.table) == after
    assert feed.rows() == final_rows(history)
    assert feed.rows(log, EVENT_COLUMNS) == event_rows(history.events)


def test_a_moment_selects_the_snapshot_of_that_time(lake: Lake) -> None:
    name = create(lake, 2)
    append(lake, name, 0, 10)
    first = head(lake, name)
    moment = datetime.now(UTC).isoformat()
    append(lake, name, 10, 20)
    report = run(lake, rollback_tables, name, to=moment)
    assert (head(lake, name), report.metrics["rows_before"], report.metrics["rows_after"]) == (first, 20, 10)
    assert report.metrics["next_ingestion"].startswith("starts over")
    with pytest.raises(InputError, match="snapshot '2020-01-01' does not exist"):
        run(lake, rollback_tables, name, to="2020-01-01")
    with pytest.raises(InputError, match="No snapshot to roll back to is given"):
        run(lake, rollback_tables, name)


def test_another_writers_commit_is_not_lost(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    name = create(lake, 2)
    append(lake, name, 0, 10)
    first = head(lake, name)
    append(lake, name, 10, 20)

    def beside(*arguments: Any, **named: Any) -> None:
        append(lake, name, 20, 30)
        change_refs(*arguments, **named)

    monkeypatch.setattr("lakecdc.maintain.rollback.change_refs", beside)
    with pytest.raises(ConflictError, match="another writer"):
        run(lake, rollback_tables, name, to=str(first))
    assert len(duckdb_rows(lake, name)) == 30


def test_a_table_under_a_lease_is_not_rolled_back(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(length, "SECONDS", 1.5)
    name, log = create(lake, 2), create(lake, 2)
    append(lake, name, 0, 10)
    first = head(lake, name)
    append(lake, name, 10, 20)
    append(lake, log, 0, 10)
    newest, options = head(lake, name), {"to": str(first), "history_tables": {name: log}}
    for leased in (name, log):
        table = lake.table(leased)
        start = table.head()
        assert start is not None
        with start_tag(table, start, "sort_data_files"), pytest.raises(ConflictError, match="held by sort_data_files"):
            run(lake, rollback_tables, name, **options)
        assert head(lake, name) == newest
    assert run(lake, rollback_tables, name, to=str(first)).outcome == "done"


def test_expired_rows_are_restored_only_on_request(lake: Lake) -> None:
    name = create(lake, 2, partitioned_by="days(t)", columns="id bigint, t timestamp_ntz")
    rows = "(1, TIMESTAMP_NTZ '2025-01-01 10:00:00'), (2, TIMESTAMP_NTZ '2025-03-01 10:00:00')"
    lake.sql(f"INSERT INTO lake.{name} VALUES {rows}")
    full = head(lake, name)
    run(lake, expire_partitions, name, time_column="t", older_than="2025-02-01")
    before = metadata_location(lake, name)
    with pytest.raises(InputError, match="expire_partitions removed"):
        run(lake, rollback_tables, name, to=str(full))
    assert metadata_location(lake, name) == before
    run(lake, rollback_tables, name, to=str(full), expired_rows=True)
    assert len(duckdb_rows(lake, name)) == 2


def test_a_history_table_of_another_table_is_refused(lake: Lake, tmp_path: Path) -> None:
    (one, log), history = fed(lake, tmp_path), History.of(6, 20)
    one.take(history.events)
    other = create(lake, 2)
    append(lake, other, 0, 10)
    first = head(lake, other)
    append(lake, other, 10, 20)
    before = metadata_location(lake, other)
    for named, message in (
        (log, f"not the history table of {other}"),
        ("test.nowhere", "history table does not exist"),
    ):
        with pytest.raises(InputError, match=message):
            run(lake, rollback_tables, other, to=str(first), history_tables={other: named})
    assert metadata_location(lake, other) == before
