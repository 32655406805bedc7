"""Changes are exported to tables and folders exactly once, however a run ends, and can be read without Spark."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lakecdc.contract.errors import ConflictError, InputError, SpecError
from lakecdc.contract.fields import parse
from lakecdc.contract.past import ExportChangesOptions
from lakecdc.contract.report import TableReport
from lakecdc.export.job import export_changes
from lakecdc.iceberg.refs import put_consumer, read_refs
from lakecdc.maintain.compact import compact_data_files
from lakecdc.maintain.delete_files.job import rewrite_delete_files
from lakecdc.maintain.expire import expire_snapshots
from lakecdc.maintain.rollback import rollback_tables
from lakecdc.metadata.consumers import read_consumers
from lakecdc.runtime import failpoints
from tests.conftest import Lake
from tests.lakecdc.maintain.support import append, create, delete_by_key, head, meanwhile, metadata_location, run
from tests.on_demand import on_demand
from tests.readers import duckdb_connection

Change = tuple[Any, ...]


def keyed(lake: Lake, version: int = 2) -> str:
    name = create(lake, version)
    lake.sql(f"ALTER TABLE lake.{name} SET IDENTIFIER FIELDS id")
    return name


def to_table(lake: Lake, name: str, **options: Any) -> TableReport:
    return run(lake, export_changes, name, destinations={name: {"table": f"{name}_changes"}}, **options)


def to_folder(lake: Lake, name: str, folder: Path, format: str = "parquet", **options: Any) -> TableReport:
    destination = {"folder": str(folder), "format": format}
    return run(lake, export_changes, name, destinations={name: destination}, **options)


def exported(lake: Lake, name: str, *snapshots: int) -> list[Change]:
    """Read the changes of these source snapshots from a change table with DuckDB."""
    rows = lake.duckdb_rows(f"{name}_changes", "_change_type, id, v, _commit_snapshot_id")
    return sorted(row[:3] for row in rows if row[3] in snapshots)


def in_files(folder: Path) -> list[Change]:
    """Read the changes in the newest folder of Parquet files that has a marker."""
    newest = max(folder.glob("*/_SUCCESS")).parent
    with duckdb_connection() as connection:
        rows = connection.execute(f"SELECT _change_type, id, v FROM '{newest}/*.parquet'").fetchall()
    return sorted(rows)


def test_the_first_export_has_all_rows_and_later_ones_the_changes(lake: Lake) -> None:
    name = keyed(lake)
    assert to_table(lake, name).reason == "the table has no snapshot"
    append(lake, name, 0, 3)
    first = head(lake, name)
    dry = to_table(lake, name, dry_run=True)
    assert (dry.outcome, dry.metrics["changes"]) == ("nothing", {"insert": 3})
    assert not lake.spark.catalog.tableExists(f"lake.{name}_changes")
    report = to_table(lake, name)
    assert (report.outcome, report.metrics["since"], report.metrics["rows_written"]) == ("done", None, 3)
    assert exported(lake, name, first) == [("insert", i, f"old{i}") for i in range(3)]

    delete_by_key(lake, name, [1, 7], "new")
    delete_by_key(lake, name, [2])
    second = head(lake, name)
    report = to_table(lake, name)
    assert report.metrics["changes"] == {"delete": 1, "update_before": 1, "update_after": 1, "insert": 1}
    assert exported(lake, name, second) == [
        ("delete", 2, "old2"),
        ("insert", 7, "new7"),
        ("update_after", 1, "new1"),
        ("update_before", 1, "old1"),
    ]

    before = metadata_location(lake, f"{name}_changes")
    assert to_table(lake, name).reason == "everything is already exported"
    assert to_table(lake, name, until=str(first)).reason == (
        f"it is already exported up to the later snapshot {second}"
    )
    assert metadata_location(lake, f"{name}_changes") == before


def test_maintenance_and_quiet_tables_export_nothing(lake: Lake) -> None:
    name = keyed(lake, 3)
    append(lake, name, 0, 5)
    delete_by_key(lake, name, [1], "new")
    to_table(lake, name, consumer="export")
    append(lake, name, 5, 6)
    assert to_table(lake, name, consumer="export").metrics["changes"] == {"insert": 1}
    # maintenance of the change table keeps its position
    run(lake, compact_data_files, f"{name}_changes", min_input_files=2)
    written = head(lake, f"{name}_changes")
    run(lake, rewrite_delete_files, name)
    run(lake, compact_data_files, name, min_input_files=1)
    report = to_table(lake, name, consumer="export")
    assert (report.metrics["changes"], report.metrics["rows_written"]) == ({}, 0)
    assert head(lake, f"{name}_changes") == written, "an export without changes commits no snapshot"
    assert to_table(lake, name, consumer="export").outcome == "nothing"
    assert read_consumers(lake.table(name).properties)["export"].snapshot_id == head(lake, name)


@pytest.mark.soak
def test_a_rollback_is_exported_as_inverse_changes(lake: Lake, tmp_path: Path) -> None:
    name = keyed(lake)
    append(lake, name, 0, 3)
    first = head(lake, name)
    delete_by_key(lake, name, [1, 8], "new")
    for export in (to_table(lake, name, consumer="t"), to_folder(lake, name, tmp_path, consumer="f")):
        assert export.metrics["changes"] == {"insert": 4}
    run(lake, rollback_tables, name, to=str(first))
    back = [("delete", 8, "new8"), ("update_after", 1, "old1"), ("update_before", 1, "new1")]
    to_table(lake, name, consumer="t")
    to_folder(lake, name, tmp_path, consumer="f")
    assert exported(lake, name, first) == back
    assert in_files(tmp_path) == back
    assert {each.snapshot_id for each in read_consumers(lake.table(name).properties).values()} == {first}


def test_a_marker_follows_its_files(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = keyed(lake)
    append(lake, name, 0, 3)
    first = head(lake, name)
    to_folder(lake, name, tmp_path)
    assert in_files(tmp_path) == [("insert", i, f"old{i}") for i in range(3)]
    delete_by_key(lake, name, [1], "new")
    second = head(lake, name)
    monkeypatch.setenv(failpoints.VARIABLE, "before_marker=raise")
    with pytest.raises(RuntimeError, match="before_marker"):
        to_folder(lake, name, tmp_path)
    monkeypatch.delenv(failpoints.VARIABLE)
    assert len(in_files(tmp_path)) == 3
    delete_by_key(lake, name, [2])
    third = head(lake, name)
    to_folder(lake, name, tmp_path)
    assert in_files(tmp_path) == [("delete", 2, "old2"), ("update_after", 1, "new1"), ("update_before", 1, "old1")]
    # the other run may still be running
    names = [f"00000001-begin-{first}", f"00000002-{first}-{second}", f"00000003-{first}-{third}"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    marker = json.loads((tmp_path / names[2] / "_SUCCESS").read_text())
    assert (marker["since"], marker["until"]) == (str(first), str(third))
    assert sum(file["rows"] for file in marker["files"]) == 3
    for path in (tmp_path / names[1]).iterdir():
        os.utime(path, (time.time() - 25 * 3600,) * 2)
    append(lake, name, 3, 4)
    to_folder(lake, name, tmp_path)
    names = [names[0], names[2], f"00000004-{third}-{head(lake, name)}"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


@pytest.mark.parametrize("moment", on_demand(("before_marker", "before_number"), in_ci=("before_marker",)))
def test_of_two_runs_to_a_folder_one_is_published(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    name = keyed(lake)
    append(lake, name, 0, 3)
    first = head(lake, name)
    to_folder(lake, name, tmp_path)
    append(lake, name, 3, 6)
    meanwhile(monkeypatch, moment, lambda: to_folder(lake, name, tmp_path))
    with pytest.raises(ConflictError, match="Another run exported to"):
        to_folder(lake, name, tmp_path)
    assert in_files(tmp_path) == [("insert", i, f"old{i}") for i in range(3, 6)]
    second = f"{2 if moment == 'before_number' else 3:08d}-{first}-{head(lake, name)}"
    assert sorted(path.parent.name for path in tmp_path.glob("*/*.parquet")) == [f"00000001-begin-{first}", second]
    assert not [tag for tag in read_refs(lake.table(name)) if tag.startswith("lakecdc-job")]


def test_an_export_with_missing_files_is_not_published(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = keyed(lake)
    append(lake, name, 0, 3)

    def lose() -> None:
        for path in tmp_path.glob("*/*.parquet"):
            path.unlink()

    meanwhile(monkeypatch, "before_marker", lose)
    with pytest.raises(ConflictError, match="changed files of this export"):
        to_folder(lake, name, tmp_path)
    assert not list(tmp_path.glob("*/_SUCCESS"))


@pytest.mark.soak
def test_envelopes_have_both_images(lake: Lake, tmp_path: Path) -> None:
    name = create(lake, 2, columns="id bigint NOT NULL, at timestamp, m map<string, int>")
    lake.sql(f"ALTER TABLE lake.{name} SET IDENTIFIER FIELDS id")
    lake.sql(f"INSERT INTO lake.{name} VALUES (1, timestamp_micros(1), map('a', 1)), (2, NULL, NULL)")
    to_folder(lake, name, tmp_path, "debezium-json")
    first = head(lake, name)
    lake.sql(f"UPDATE lake.{name} SET m = map('a', 2) WHERE id = 1")
    lake.sql(f"DELETE FROM lake.{name} WHERE id = 2")
    lake.sql(f"INSERT INTO lake.{name} VALUES (3, NULL, NULL)")
    to_folder(lake, name, tmp_path, "debezium-json")
    folders = sorted(tmp_path.iterdir())
    whole, changed = (
        sorted(
            (json.loads(line) for file in folder.glob("*.jsonl") for line in file.read_text().splitlines()),
            key=lambda e: (e["after"] or e["before"])["id"],
        )
        for folder in folders
    )
    one = {"id": 1, "at": "1970-01-01T00:00:00.000001Z", "m": {"a": 1}}
    assert [(e["op"], e["before"], e["after"]) for e in whole] == [
        ("r", None, one),
        ("r", None, {"id": 2, "at": None, "m": None}),
    ]
    assert [(e["op"], e["before"], e["after"]) for e in changed] == [
        ("u", one, {**one, "m": {"a": 2}}),
        ("d", {"id": 2, "at": None, "m": None}, None),
        ("c", None, {"id": 3, "at": None, "m": None}),
    ]
    source = changed[0]["source"]
    assert (source["table"], source["snapshot"], source["snapshot_id"]) == (
        name.partition(".")[2],
        "false",
        str(head(lake, name)),
    )
    assert whole[0]["source"]["snapshot_id"] == str(first)


def test_unexported_changes_do_not_expire(lake: Lake) -> None:
    name = keyed(lake)
    append(lake, name, 0, 3)
    first = head(lake, name)
    to_table(lake, name, since=str(first), consumer="export")
    refs = read_refs(lake.table(name))
    assert refs["lakecdc-consumer-export"].snapshot_id == first
    for number in (3, 4):
        append(lake, name, number, number + 1)
    run(lake, expire_snapshots, name, older_than="2100-01-01", retain_last=1)
    assert to_table(lake, name, consumer="export").metrics["changes"] == {"insert": 2}
    append(lake, name, 6, 7)
    put_consumer(lake.table(name), "export", lake.table(name).head())  # type: ignore[arg-type]
    run(lake, expire_snapshots, name, older_than="2100-01-01", retain_last=1)
    with pytest.raises(InputError, match="has expired, so the changes after it"):
        to_table(lake, name)


def test_of_two_runs_one_commits(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    name = keyed(lake)
    append(lake, name, 0, 3)
    to_table(lake, name)
    append(lake, name, 3, 6)
    meanwhile(monkeypatch, "before_commit", lambda: to_table(lake, name))
    with pytest.raises(ConflictError, match="another run has moved"):
        to_table(lake, name)
    assert sorted(row[0] for row in lake.duckdb_rows(f"{name}_changes", "id")) == list(range(6))


@pytest.mark.parametrize(
    ("first", "second"),
    on_demand(
        [("before_commit", "before_consumer"), ("after_staging", "after_commit")],
        in_ci=[("before_commit", "before_consumer")],
    ),
)
def test_a_killed_run_is_repeated_in_full_or_not_at_all(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, first: str, second: str
) -> None:
    name = keyed(lake)
    append(lake, name, 0, 3)
    for number, moment in enumerate((first, second)):
        monkeypatch.setenv(failpoints.VARIABLE, f"{moment}=raise")
        monkeypatch.setattr(failpoints, "_passes", Counter())
        with pytest.raises(RuntimeError, match=moment):
            to_table(lake, name, consumer="export")
        monkeypatch.delenv(failpoints.VARIABLE)
        to_table(lake, name, consumer="export")
        ids = [row[0] for row in lake.duckdb_rows(f"{name}_changes", "id")]
        assert sorted(ids) == list(range(3 + number)), moment
        assert read_consumers(lake.table(name).properties)["export"].snapshot_id == head(lake, name)
        append(lake, name, 3 + number, 4 + number)


@pytest.mark.soak
def test_columns_follow_the_source(lake: Lake) -> None:
    name = keyed(lake)
    append(lake, name, 0, 1)
    to_table(lake, name)
    lake.sql(f"ALTER TABLE lake.{name} ADD COLUMN w int")
    lake.sql(f"ALTER TABLE lake.{name} DROP COLUMN v")
    lake.sql(f"INSERT INTO lake.{name} VALUES (1, 1, 5)")
    to_table(lake, name)
    rows = lake.duckdb_rows(f"{name}_changes", "_change_type, id, v, d, w")
    assert sorted(rows) == [("insert", 0, "old0", 0, None), ("insert", 1, None, 1, 5)]


def test_foreign_destinations_are_refused(lake: Lake, tmp_path: Path) -> None:
    name, other = keyed(lake), keyed(lake)
    for table in (name, other):
        append(lake, table, 0, 2)
    to_table(lake, other)
    to_folder(lake, other, tmp_path)
    for destination, message in (
        ({"table": f"{other}_changes"}, f"{other}_changes does not contain changes"),
        ({"folder": str(tmp_path)}, f"{tmp_path} does not contain changes"),
        ({"table": other}, "is not a change table"),
    ):
        with pytest.raises(InputError, match=message):
            run(lake, export_changes, name, destinations={name: destination})
    with pytest.raises(InputError, match="It has no export destination"):
        run(lake, export_changes, name)


@pytest.mark.parametrize(
    ("destination", "message"),
    [
        ({}, "a table or a folder"),
        ({"table": "a.b", "folder": "/c"}, "a table or a folder"),
        ({"folder": "here"}, "is relative"),
    ],
)
def test_a_destination_is_a_table_or_a_folder(destination: dict[str, str], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parse(ExportChangesOptions, {"destinations": {"shop.orders": destination}}, "options")
