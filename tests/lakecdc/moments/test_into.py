"""Moments restored into separate tables and as rows: replaced in one commit, without overwriting foreign tables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from lakecdc import moments
from lakecdc.contract.errors import InputError, SpecError
from lakecdc.contract.fields import parse
from lakecdc.contract.past import RestoreMomentOptions
from lakecdc.contract.report import TableReport
from lakecdc.iceberg.definition import partitioning
from lakecdc.iceberg.refs import read_refs
from lakecdc.maintain.compact import compact_data_files
from tests.conftest import Lake
from tests.lakecdc.ingest.apply.support import Feed, in_batches
from tests.lakecdc.ingest.killing import Run, act_at
from tests.lakecdc.maintain.support import metadata_location, run
from tests.lakecdc.moments.support import Remembered, fed, iso, restored

PAGE = (Path(__file__).parents[3] / "docs/guides/restore-moment.md").read_text()


def restore_into(feed: Feed, moment: int, name: str = "", **options: Any) -> TableReport:
    """Restore a moment into a separate table."""
    into = {feed.table: name or f"{feed.table}_then"}
    return restored(feed.lake, feed.table, moment=iso(moment), into=into, **options)[0]


@pytest.fixture(scope="module")
def feed(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> tuple[Feed, Remembered]:
    """Create a table with its history; each test restores it under its own names."""
    folder = tmp_path_factory.mktemp("into")
    feed, history = fed(lake, folder / "files", partition_by=["bucket(2, id)"]), Remembered.of(51, 30)
    for events in in_batches(history, 10, 20):
        feed.take(events)
    return feed, history


def test_a_restored_table_is_replaced_for_another_moment(lake: Lake, feed: tuple[Feed, Remembered]) -> None:
    fed, history = feed
    then, before = f"{fed.table}_then", {**read_refs(lake.table(fed.table))}
    early, late = history.moments()[12], history.moments()[24]
    assert restore_into(fed, early, dry_run=True).outcome == "nothing"
    assert not lake.spark.catalog.tableExists(f"lake.{then}")
    report = restore_into(fed, early)
    assert (report.outcome, report.metrics["into"], "branch" in report.metrics) == ("done", then, False), report.reason
    assert fed.rows(then) == history.at(early) and report.metrics["rows_written"] == len(history.at(early))
    table = lake.table(then)
    assert (table.identifier_columns, partitioning(table)) == (["id"], ["bucket(2, `id`)"])
    run(lake, compact_data_files, then, min_input_files=1)
    location = metadata_location(lake, then)
    assert restore_into(fed, early).reason == "the moment has been restored already"
    assert metadata_location(lake, then) == location
    first = lake.table(then).head()
    lake.sql(f"ALTER TABLE lake.{fed.table} ADD COLUMN more int")
    assert restore_into(fed, late).outcome == "done"
    assert fed.rows(then) == history.at(late)
    assert lake.table(then).column_names == lake.table(fed.table).column_names
    # readers of the earlier state can continue
    assert first and lake.spark.sql(f"SELECT * FROM lake.{then} VERSION AS OF {first.id}").count() == len(
        history.at(early)
    )
    assert read_refs(lake.table(fed.table)) == before


def test_foreign_tables_are_not_overwritten(lake: Lake, feed: tuple[Feed, Remembered]) -> None:
    fed, history = feed
    moment, then = history.moments()[12], f"{fed.table}_other"

    def refusal(name: str) -> str:
        location = metadata_location(lake, name)
        report = restore_into(fed, moment, name)
        assert (report.outcome, metadata_location(lake, name)) == ("failed", location)
        return report.reason or ""

    lake.sql(f"CREATE TABLE lake.{then} (id bigint)")
    for name in (then, fed.table, f"{fed.table}_history"):
        assert "already exists and does not contain a moment" in refusal(name)
    lake.sql(f"DROP TABLE lake.{then}")
    restore_into(fed, moment, then)
    lake.sql(f"DELETE FROM lake.{then} WHERE true")
    assert "already exists and does not contain a moment" in refusal(then)


def test_reading_rows_of_a_moment_leaves_nothing_behind(lake: Lake, feed: tuple[Feed, Remembered]) -> None:
    fed, history = feed
    table, moment = lake.table(fed.table).refresh(), history.moments()[15]
    before = read_refs(table), [each.id for each in table.ancestors()]
    snapshots = table.java.operations().current().snapshots().size()
    (code,) = re.findall(r"^```python moment\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    code = code.replace("lake.shop.orders", f"lake.{fed.table}").replace("2026-01-31T00:03:00+01:00", iso(moment))
    names: dict[str, Any] = {"spark": lake.spark}
    exec(code, names)
    rows = names["rows"].select("id", "name", "n", "doc").collect()
    assert sorted(map(tuple, rows), key=str) == history.at(moment)
    table.refresh()
    assert before == (read_refs(table), [each.id for each in table.ancestors()])
    assert table.java.operations().current().snapshots().size() == snapshots
    name = f"lake.{fed.table}"
    with pytest.raises(InputError, match="has been read only through"):
        moments.read(lake.spark, name, moment="2030-01-01T00:00:00Z", history_table=f"{name}_history")
    with pytest.raises(InputError, match="not in the table's catalog"):
        moments.read(lake.spark, name, moment=iso(moment), history_table=f"{fed.table}_history")


# a separate process has to start Spark: CI kills only one, and lets another fail in this process
@pytest.mark.parametrize(
    ("failpoint", "into"),
    [
        ("before_commit=kill", True),
        ("after_commit=raise", False),
        pytest.param("after_commit=kill", True, marks=pytest.mark.soak),
        pytest.param("before_commit=kill", False, marks=pytest.mark.soak),
    ],
)
def test_an_interrupted_run_is_completed_by_the_next(
    lake: Lake,
    feed: tuple[Feed, Remembered],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failpoint: str,
    into: bool,
) -> None:
    fed, history = feed
    where, _, action = failpoint.partition("=")
    moment, branch = history.moments()[12], f"{action}_{where}"
    then = f"{fed.table}_{branch}"
    options: dict[str, Any] = {"moment": iso(moment), "history_tables": {fed.table: f"{fed.table}_history"}}
    options |= {"into": {fed.table: then}} if into else {"branch": branch}
    if action == "kill":
        assert Run(tmp_path, lake.spec("restore_moment", fed.table, options=options), failpoint).was_killed()
    else:
        act_at(monkeypatch, failpoint)
        assert where in str(restored(lake, fed.table, **options)[0].reason)
        act_at(monkeypatch, "")
    (report,) = restored(lake, fed.table, **options)
    assert report.outcome == ("done" if where == "before_commit" else "nothing"), report.reason
    rows = fed.rows(then) if into else sorted(lake.duckdb_rows(fed.table, "id, name, n, doc", branch), key=str)
    assert rows == history.at(moment)


def test_two_tables_cannot_be_restored_into_one() -> None:
    with pytest.raises(SpecError, match="same table for several tables"):
        parse(RestoreMomentOptions, {"into": {"shop.a": "shop.then", "shop.b": "shop.then"}}, "options")
