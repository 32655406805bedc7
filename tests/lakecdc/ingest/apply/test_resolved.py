"""Deletes resolved before the commit: no snapshot has an equality delete, and every reader sees the source's rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakecdc.contract.errors import SpecError
from lakecdc.contract.target import parse_targets
from lakecdc.key_search import match
from lakecdc.maintain.compact import compact_data_files
from lakecdc.maintain.sort import sort_data_files
from tests.conftest import Lake
from tests.lakecdc.ingest.apply.support import Feed, PlainHistory, final_rows, in_batches, scattered, truncate
from tests.lakecdc.ingest.by_spark import both_engines
from tests.lakecdc.ingest.histories import History
from tests.lakecdc.maintain.support import head, meanwhile, run
from tests.on_demand import on_demand
from tests.versions import V2, V3


def resolved(lake: Lake, folder: Path, version: int = 2, **target: Any) -> Feed:
    return Feed(lake, folder, {"deletes": "resolved", "format_version": version, **target})


def by_pyiceberg(feed: Feed) -> list[tuple[Any, ...]]:
    rows = feed.lake.pyiceberg().load_table(feed.table).scan().to_arrow().to_pylist()
    return sorted(((row["id"], row["name"], row["n"], row["doc"]) for row in rows), key=str)


def check(feed: Feed, history: History) -> None:
    """Check that DuckDB, pyiceberg and Spark read the source's rows and that no snapshot had an equality delete."""
    expected = final_rows(history)
    assert feed.rows() == expected
    assert by_pyiceberg(feed) == expected
    rows = feed.lake.table(feed.table).read(columns=["id", "name", "n", "doc"]).collect()
    assert sorted(map(tuple, rows), key=str) == expected
    counts = [s.summary.get("total-equality-deletes", "0") for s in feed.lake.table(feed.table).ancestors()]
    assert set(counts) == {"0"}


@both_engines
@pytest.mark.parametrize("partition_by", on_demand([["bucket(2, id)"], []], in_ci=(["bucket(2, id)"],)))
@V2
def test_a_table_equals_its_source_after_each_batch(
    lake: Lake, tmp_path: Path, engine: str, version: int, partition_by: list[str]
) -> None:
    feed, history = resolved(lake, tmp_path, version, partition_by=partition_by), History.of(11, 90)
    positions = 0
    for batch in in_batches(history, 30, 50, 70):
        positions += feed.take(batch).metrics.get("positions", 0)
    check(feed, history)
    assert positions > 10
    # at most one delete file per data file, for any number of batches
    deletes = lake.table(feed.table).metadata("delete_files").collect()
    assert len({row["referenced_data_file"] for row in deletes}) == len(deletes)


def test_late_and_repeated_events_keep_the_newest_rows(lake: Lake, tmp_path: Path) -> None:
    feed, history = resolved(lake, tmp_path, 3), PlainHistory.of(5, 80)
    for batch in scattered(history, 1, 4):
        feed.take(batch)
    check(feed, history)


@V3
def test_a_truncate_and_later_events_are_applied(lake: Lake, tmp_path: Path, version: int) -> None:
    feed, history = resolved(lake, tmp_path, version), PlainHistory.of(2, 40)
    feed.take(history.events[:30])
    feed.take(history.events[30:])
    begun = len(history.events)
    truncate(history)
    for _ in range(20):
        history.statement(12)
    feed.take(history.events[begun:])
    check(feed, history)


def test_a_row_of_another_writer_is_replaced_beside_a_truncate(lake: Lake, tmp_path: Path) -> None:
    """The row has no order key, so the TRUNCATE keeps it."""
    feed, history = resolved(lake, tmp_path), PlainHistory.of(2, 40)
    feed.take(history.events)
    lake.sql(f"INSERT INTO lake.{feed.table} (id, name) SELECT 3, 'foreign'")
    begun = len(history.events)
    truncate(history)
    history.insert(3)
    feed.take(history.events[begun:])
    check(feed, history)


@pytest.mark.parametrize("table_checks", [[], [{"type": "unique", "columns": ["id"]}]])
def test_audited_batches_are_checked_as_they_are_published(
    lake: Lake, tmp_path: Path, table_checks: list[dict[str, Any]]
) -> None:
    few = {"type": "condition", "condition": "n < 1000"}
    feed = resolved(lake, tmp_path, 3, publish="audited", checks=[few], table_checks=table_checks)
    history = PlainHistory.of(3, 60)
    for batch in in_batches(history, 30, 45):
        feed.take(batch)
    check(feed, history)


REWRITES: dict[str, Callable[[Feed], object]] = {
    "compaction": lambda feed: run(feed.lake, compact_data_files, feed.table, min_input_files=2),
    "sort": lambda feed: run(feed.lake, sort_data_files, feed.table, columns=["id"], min_overlap_depth=1),
}


# both replace files, which is all that the search looks at
@pytest.mark.parametrize("rewrite", on_demand(REWRITES, in_ci=("compaction",)))
@V2
def test_rewrites_between_search_and_commit_lose_no_delete(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, rewrite: str
) -> None:
    feed, history = resolved(lake, tmp_path, version), PlainHistory.of(7, 80)
    *first, last = in_batches(history, 40, 60)
    for batch in first:
        feed.take(batch)
    meanwhile(monkeypatch, "before_commit", lambda: REWRITES[rewrite](feed))
    assert feed.take(last).metrics["searches"] == 2
    check(feed, history)


@V2
def test_rows_appended_by_others_meanwhile_are_deleted_too(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    feed, history = resolved(lake, tmp_path, version), PlainHistory.of(9, 60)
    first, last = in_batches(history, 40)
    feed.take(first)
    changed = last[0]["key"]["id"]

    def append() -> None:
        lake.sql(f"INSERT INTO lake.{feed.table} (id, name) SELECT {changed}, 'foreign'")

    meanwhile(monkeypatch, "before_commit", append)
    # in format v3 the batch is staged again, with the present ids of the rows that it replaces
    assert feed.take(last).metrics["searches"] == (2 if version == 2 else 1)
    check(feed, history)


def test_rows_added_by_others_to_an_empty_table_are_deleted_too(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed, history = resolved(lake, tmp_path), PlainHistory.of(9, 20)
    key = next(iter(history.rows))

    def append() -> None:
        lake.sql(f"INSERT INTO lake.{feed.table} (id, name) SELECT {key}, 'foreign'")

    meanwhile(monkeypatch, "before_commit", append)
    feed.take(history.events)
    check(feed, history)


def test_a_row_id_moved_to_another_key_is_not_reused(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed, history = resolved(lake, tmp_path, 3), PlainHistory.of(1, 0)
    for key in range(4):
        history.insert(key)
    feed.take(history.events)
    begun = len(history.events)
    history.update(3, touch_doc=True)
    moved = f"UPDATE lake.{feed.table} SET id = 5 WHERE id = 3"
    meanwhile(monkeypatch, "before_commit", lambda: lake.sql(moved))
    feed.take(history.events[begun:])
    assert sorted(row[0] for row in feed.rows(columns="id")) == [0, 1, 2, 3, 5]
    assert len({each[0] for each in row_ids(feed).values()}) == 5


def test_only_new_files_are_searched_again(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    feed, history = resolved(lake, tmp_path), PlainHistory.of(9, 60)
    *first, last = in_batches(history, 20, 40)
    for batch in first:
        feed.take(batch)
    meanwhile(
        monkeypatch,
        "before_commit",
        lambda: lake.sql(f"INSERT INTO lake.{feed.table} (id, name) SELECT {last[0]['key']['id']}, 'foreign'"),
    )
    metrics = feed.take(last).metrics
    assert (metrics["searches"], metrics["data_files_searched"]) == (2, 3)
    check(feed, history)


def test_a_changed_partition_spec_stages_the_batch_again(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed, history = resolved(lake, tmp_path, partition_by=["bucket(2, id)"]), PlainHistory.of(4, 60)
    first, last = in_batches(history, 40)
    feed.take(first)

    def evolve() -> None:
        lake.sql(f"ALTER TABLE lake.{feed.table} REPLACE PARTITION FIELD id_bucket WITH bucket(3, id)")
        run(lake, compact_data_files, feed.table, min_input_files=1, older_specs=True)

    meanwhile(monkeypatch, "before_commit", evolve)
    feed.take(last)
    check(feed, history)


def test_position_deletes_from_before_an_upgrade_still_apply(lake: Lake, tmp_path: Path) -> None:
    """In format v3, readers ignore position-delete files of a data file that has a deletion vector (specification)."""
    feed, history = resolved(lake, tmp_path), PlainHistory.of(6, 90)
    first, second, last = in_batches(history, 40, 65)
    feed.take(first)
    lake.sql(f"ALTER TABLE lake.{feed.table} SET TBLPROPERTIES ('write.delete.granularity' = 'partition')")
    lake.sql(f"DELETE FROM lake.{feed.table} WHERE id % 5 = 1")
    feed.take(second)
    lake.sql(f"ALTER TABLE lake.{feed.table} SET TBLPROPERTIES ('format-version' = '3')")
    feed.take(last)
    deleted = {key for key in range(12) if key % 5 == 1}
    written_since = {event["key"]["id"] for event in second + last}
    expected = [row for row in final_rows(history) if row[0] not in deleted or row[0] in written_since]
    assert feed.rows() == expected


def with_equality_deletes(lake: Lake, folder: Path) -> tuple[Feed, PlainHistory, list[Any]]:
    """Make a table whose target starts to resolve deletes; return its history and its next events too."""
    feed, history = Feed(lake, folder, {}), PlainHistory.of(8, 90)
    first, second, last = in_batches(history, 40, 65)
    feed.take(first)
    feed.take(second)
    feed.target["deletes"] = "resolved"
    return feed, history, last


def test_the_first_run_converts_earlier_equality_deletes(lake: Lake, tmp_path: Path) -> None:
    feed, history, last = with_equality_deletes(lake, tmp_path)
    report = feed.run()
    assert (report.outcome, report.reason) == ("done", None)
    assert report.metrics["equality_delete_files_converted"] > 0
    assert report.snapshot_after == str(head(lake, feed.table)) != report.snapshot_before
    feed.take(last)
    assert feed.rows() == by_pyiceberg(feed) == final_rows(history)


def test_a_failed_conversion_does_not_stop_the_job(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    feed, history, last = with_equality_deletes(lake, tmp_path)
    lake.sql(f"ALTER TABLE lake.{feed.table} SET TBLPROPERTIES ('lakecdc.policy.allow' = 'none')")
    report = feed.take(last)
    assert report.reason and "equality-delete files are left" in report.reason and "does not allow" in report.reason
    assert report.metrics["equality_delete_files"] > 0
    assert feed.rows() == final_rows(history)


def test_files_that_tasks_cannot_read_are_searched_by_iceberg(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched, real = [], match.deleted_positions

    def deleted_positions(*arguments: Any) -> Any:
        searched.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(match, "deleted_positions", deleted_positions)
    monkeypatch.setattr(match, "delete_files", lambda tasks: {})
    feed, history = resolved(lake, tmp_path, 3), PlainHistory.of(12, 60)
    for batch in in_batches(history, 30, 45):
        feed.take(batch)
    check(feed, history)
    assert searched


@V3
def test_files_without_the_keys_are_not_read(lake: Lake, tmp_path: Path, version: int) -> None:
    feed, history = resolved(lake, tmp_path, version), PlainHistory.of(1, 0)

    def insert(*keys: int) -> dict[str, Any]:
        begun = len(history.events)
        for key in keys:
            history.insert(key)
        return feed.take(history.events[begun:]).metrics

    for low in (0, 100, 200):
        insert(*range(low, low + 10))
    begun = len(history.events)
    for key in (203, 205):
        history.update(key, touch_doc=True)
    metrics = feed.take(history.events[begun:]).metrics
    assert (metrics["data_files_searched"], metrics["positions"]) == (1, 2)
    # between the keys of files
    metrics = insert(50, 300)
    assert (metrics["data_files_searched"], metrics["positions"], metrics["delete_files"]) == (0, 0, 0)
    # at both ends of the table, and between the keys 50 and 300
    begun = len(history.events)
    for key in (3, 207):
        history.update(key, touch_doc=True)
    metrics = feed.take(history.events[begun:]).metrics
    assert (metrics["data_files_searched"], metrics["positions"]) == (3, 2)
    check(feed, history)


@both_engines
@V3
def test_looked_up_rows_are_not_searched_again(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, version: int
) -> None:
    feed, history = resolved(lake, tmp_path, version, partition_by=[]), History.of(1, 0)
    for key in range(12):
        history.insert(key)
    feed.take(history.events[:6])
    feed.take(history.events[6:])
    ids = row_ids(feed) if version == 3 else {}

    def change() -> dict[str, Any]:
        begun = len(history.events)
        for key in (2, 3, 9):
            history.update(key, touch_doc=False)
        # located while the table completes other rows
        history.update(4, touch_doc=True)
        history.delete(min(history.rows))
        return feed.take(history.events[begun:]).metrics

    metrics = change()
    assert (metrics["completion_lookups"], metrics["searches"], metrics["data_files_searched"]) == (3, 1, 0)
    assert metrics["positions"] == 5
    check(feed, history)
    if version == 3:
        assert {key: each[0] for key, each in row_ids(feed).items()} == {key: ids[key][0] for key in history.rows}
    # rows looked up in files that others have replaced are searched for again
    meanwhile(monkeypatch, "before_commit", lambda: REWRITES["compaction"](feed))
    metrics = change()
    assert (metrics["searches"], metrics["data_files_searched"], metrics["positions"]) == (2, 1, 5)
    check(feed, history)


@pytest.mark.parametrize("mode", ["append", "history", "merge"])
def test_modes_without_equality_deletes_refuse_the_setting(mode: str) -> None:
    with pytest.raises(SpecError, match="writes no equality deletes"):
        parse_targets({"table": "a.b", "mode": mode, "deletes": "resolved"})


def row_ids(feed: Feed) -> dict[int, tuple[int, int]]:
    """Return row id and sequence number of the last change, by key."""
    rows = feed.lake.sql(f"SELECT id, _row_id, _last_updated_sequence_number FROM lake.{feed.table}").collect()
    return {row[0]: (row[1], row[2]) for row in rows}


@both_engines
@pytest.mark.parametrize("key", on_demand([["id"], ["name", "id"]], in_ci=(["id"],)))
def test_a_changed_row_keeps_its_row_id(lake: Lake, tmp_path: Path, engine: str, key: list[str]) -> None:
    feed, history = resolved(lake, tmp_path, 3, key=key), PlainHistory.of(1, 0)

    def change(*keys: int) -> None:
        begun = len(history.events)
        for number in keys:
            if number in history.rows:
                history.rows[number]["n"] = len(history.events)
                history._event("u", None, history.rows[number])
            else:
                history.insert(number)
        feed.take(history.events[begun:])

    change(*range(10))
    first = row_ids(feed)
    change(3, 4, 20)
    second = row_ids(feed)
    assert {n: second[n][0] for n in range(10)} == {n: first[n][0] for n in range(10)}
    assert second[20][0] not in {each[0] for each in first.values()}
    assert {n for n in range(10) if second[n][1] > first[n][1]} == {3, 4}
    # rewritten files store their row ids; one row has moved out of its first file
    run(lake, compact_data_files, feed.table, min_input_files=2)
    change(4, 5, 20)
    third = row_ids(feed)
    assert {n: each[0] for n, each in third.items()} == {n: each[0] for n, each in second.items()}
    assert len({each[0] for each in third.values()}) == 11
    check(feed, history)
