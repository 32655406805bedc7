"""Rows are written exactly once, whatever happens to catalogs and writers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from airflow_provider_lakecdc.audit import (
    Application,
    health_history,
    history,
    outbox,
    record_application,
    record_health,
)
from airflow_provider_lakecdc.audit.commit import append_once
from airflow_provider_lakecdc.audit.lake_tables import AUDIT, HEALTH, LAKE_TABLES
from airflow_provider_lakecdc.audit.outbox import Batch
from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
from airflow_provider_lakecdc.lake.tables import summary_of
from airflow_provider_lakecdc.operators.remove_documents import RemoveDocumentsOperator
from lakecdc.contract.report import TableReport
from lakecdc.metadata import names
from lakecdc.metadata.health import measure_health
from tests.airflow_provider_lakecdc.audit import catalogs
from tests.airflow_provider_lakecdc.audit.conftest import application, left_long_ago, waiting
from tests.readers import duckdb_rows


def all_rows(catalog: CatalogConnection) -> list[str]:
    """Return the ids of all audit rows, read by another engine."""
    location = catalog.load().load_table(AUDIT.name).metadata_location
    return sorted(row[0] for row in duckdb_rows(location, "row_id"))


def test_another_engine_reads_the_rows(catalog: CatalogConnection, tmp_path: Path) -> None:
    facts = {"core_seconds": 2, "bytes_read": 5.0, "bytes_written": 7, "verified": {"mode": "full"}, "left": None}
    done = TableReport("shop.orders", "done", snapshot_before="9007199254740993", metrics=facts)
    conflict = TableReport("shop.items", "conflict", "password=x1 was faster", "conflict", job="sort_data_files")
    predicted = {"compact_data_files": {"shop.orders": 3}, "sort_data_files": {"shop.orders": 4.0}}
    recorded = application(done, conflict, predicted_core_seconds=predicted)
    assert record_application(catalog, recorded)
    columns = '"table", job, outcome, reason, snapshot_before, predicted_core_seconds, core_seconds, bytes_read, proof'
    orders, items = duckdb_rows(catalog.load().load_table(AUDIT.name).metadata_location, columns)
    assert orders == (
        *("shop.orders", "compact_data_files", "done", None, "9007199254740993", 3.0, 2.0, 5, '{"mode": "full"}'),
    )
    assert items == ("shop.items", "sort_data_files", "conflict", "password=*** was faster", *[None] * 5)
    assert {row.table: row.metrics for row in history(catalog)} == {"shop.orders": facts, "shop.items": {}}
    assert waiting(tmp_path) == []


def test_the_tables_have_comments(catalog: CatalogConnection) -> None:
    opened = catalog.load()
    for kind in LAKE_TABLES.values():
        table = kind.open(opened)
        assert table.format_version == 2
        assert [(str(f.transform), f.name) for f in table.spec().fields] == [("day", f"{kind.moment}_day")]
        assert all(field.doc for field in table.schema().fields)
        assert table.schema().find_field("row_id").required


def test_an_application_is_one_commit_with_its_id(catalog: CatalogConnection) -> None:
    first = application(*(TableReport(f"shop.t{number}", "nothing") for number in range(3)))
    assert all(record_application(catalog, recorded) for recorded in (first, first, application()))
    snapshots = catalog.load().load_table(AUDIT.name).metadata.snapshots
    assert [summary_of(snapshot)["added-records"] for snapshot in snapshots] == ["3", "1"]
    assert summary_of(snapshots[0])[names.COMMIT_ID] == first.id
    assert len(all_rows(catalog)) == 4


def test_health_is_one_commit_and_keeps_facts_without_a_column(catalog: CatalogConnection) -> None:
    health = measure_health([], target_file_bytes=1, snapshots=2, manifests=[10, 20])
    rows: dict[str, dict[str, Any]] = {
        "shop.orders": {**health.facts(), "age": 5},
        "shop.new": {"score": None},
        "shop.items": health.facts(),
    }
    moment = datetime(2026, 3, 1, 23, 30, tzinfo=UTC)
    assert record_health(catalog, moment, rows)
    items, orders = sorted(health_history(catalog), key=lambda row: row.table)
    assert (items.score, items.manifests, items.measured_at) == (health.score, 2, moment)
    assert items.lost == health.lost and items.facts["manifest_bytes"] == 30
    assert orders.facts == {**items.facts, "age": 5}
    assert len(catalog.load().load_table(HEALTH.name).metadata.snapshots) == 1
    assert record_health(catalog, moment, {}) and len(health_history(catalog)) == 2


def test_twenty_concurrent_applications_are_all_recorded(
    catalog: CatalogConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # on slow machines too
    monkeypatch.setattr(outbox, "_OWN", 600)
    monkeypatch.setattr(outbox, "_ALL", 600)
    catalog.load().close()
    ready = threading.Barrier(20)

    def run(recorded: Application) -> bool:
        ready.wait()
        return record_application(catalog, recorded)

    applications = [application() for _ in range(20)]
    with ThreadPoolExecutor(20) as pool:
        assert all(pool.map(run, applications))
    assert all_rows(catalog) == sorted(f"{each.id}/0" for each in applications)
    assert waiting(tmp_path) == []


@pytest.mark.parametrize("kind", [catalogs.Refusing, catalogs.Silent])
def test_a_commit_with_a_lost_answer_counts_once(
    catalog: CatalogConnection, tmp_path: Path, kind: type[catalogs.Refusing | catalogs.Silent]
) -> None:
    AUDIT.open(catalog.load())
    recorded = application()
    is_known = kind is catalogs.Refusing
    assert record_application(catalogs.of_class(catalog, kind), recorded) is is_known
    assert len(waiting(tmp_path)) == (0 if is_known else 1)
    left_long_ago(tmp_path)
    second = application()
    assert record_application(catalog, second)
    assert all_rows(catalog) == sorted([f"{recorded.id}/0", f"{second.id}/0"])
    assert waiting(tmp_path) == []


def test_a_late_commit_is_refused(catalog: CatalogConnection) -> None:
    from pyiceberg.exceptions import CommitFailedException

    AUDIT.open(catalog.load())
    recorded = application()
    assert not record_application(catalogs.of_class(catalog, catalogs.Late), recorded)
    assert record_application(catalog, recorded)
    with pytest.raises(CommitFailedException):
        catalogs.Late.delayed.pop()()
    assert all_rows(catalog) == [f"{recorded.id}/0"]


def test_files_of_refused_commits_are_removed(catalog: CatalogConnection, tmp_path: Path) -> None:
    class Refused(SqlCatalog):
        """A catalog that refuses a commit because another writer won."""

        def commit_table(self, *arguments: Any) -> Any:
            from pyiceberg.exceptions import CommitFailedException

            if not files:
                files.extend(
                    path for path in (tmp_path / "warehouse").rglob("*") if path.suffix in (".parquet", ".avro")
                )
                raise CommitFailedException("The branch main has changed.")
            return super().commit_table(*arguments)

    files: list[Path] = []
    AUDIT.open(catalog.load())
    recorded = application()
    batch = Batch.of(recorded.id, AUDIT, recorded.rows())
    append_once(Refused("lake", **catalogs.without_type(catalog)), batch, 5)
    assert len(files) == 3 and not any(path.exists() for path in files)
    assert all_rows(catalog) == [f"{recorded.id}/0"]


def test_rows_are_recognized_after_their_snapshot_expired(catalog: CatalogConnection) -> None:
    first, second = application(), application()
    batch = Batch.of(first.id, AUDIT, first.rows())
    opened = catalog.load()
    append_once(opened, batch, 5)
    record_application(catalog, second)
    table = opened.load_table(AUDIT.name)
    table.maintenance.expire_snapshots().by_ids([table.metadata.snapshots[0].snapshot_id]).commit()
    append_once(opened, batch, 5)
    assert all_rows(catalog) == sorted([f"{first.id}/0", f"{second.id}/0"])
    # and other rows are not mistaken for these
    third = application()
    append_once(opened, Batch.of(third.id, AUDIT, third.rows()), 5)
    assert len(all_rows(catalog)) == 3


class TestOutbox:
    """Undeliverable rows wait and are delivered once."""

    @pytest.fixture
    def broken(self, catalog: CatalogConnection, tmp_path: Path) -> Callable[[], None]:
        """Make the catalog unreadable and return the function that repairs it."""
        database = tmp_path / "catalog.db"
        database.write_text("This is no database, and longer than the header of one.")
        return database.unlink

    def test_the_next_writer_delivers_the_leftovers(
        self, catalog: CatalogConnection, tmp_path: Path, broken: Callable[[], None]
    ) -> None:
        applications = [application() for _ in range(3)]
        assert not any(record_application(catalog, recorded) for recorded in applications[:2])
        broken()
        assert len(waiting(tmp_path)) == 2
        # another writer may still own the documents
        record_application(catalog, applications[2])
        assert len(all_rows(catalog)) == 1
        left_long_ago(tmp_path)
        record_health(catalog, datetime.now(UTC), {"shop.orders": {"score": 100.0}})
        assert all_rows(catalog) == sorted(f"{recorded.id}/0" for recorded in applications)
        assert waiting(tmp_path) == []

    def test_concurrent_writers_deliver_once(
        self, catalog: CatalogConnection, tmp_path: Path, broken: Callable[[], None]
    ) -> None:
        applications = [application() for _ in range(4)]
        assert not any(record_application(catalog, recorded) for recorded in applications)
        broken()
        left_long_ago(tmp_path)
        AUDIT.open(catalog.load())
        own = [application() for _ in range(3)]
        ready = threading.Barrier(len(own))

        def run(recorded: Application) -> bool:
            ready.wait()
            return record_application(catalog, recorded)

        with ThreadPoolExecutor(len(own)) as pool:
            assert all(pool.map(run, own))
        assert all_rows(catalog) == sorted(f"{recorded.id}/0" for recorded in (*applications, *own))
        assert waiting(tmp_path) == []

    def test_an_unreadable_document_does_not_prevent_the_removal_of_others(
        self, catalog: CatalogConnection, tmp_path: Path, broken: Callable[[], None]
    ) -> None:
        assert not record_application(catalog, application())
        broken()
        left_long_ago(tmp_path)
        (good,) = waiting(tmp_path)
        cut = good.with_name("20190101T000000_cut.json")
        cut.write_text(good.read_text()[:50])
        assert record_application(catalog, application())
        assert len(all_rows(catalog)) == 2
        assert waiting(tmp_path) == [cut]

    def test_a_catalog_of_the_same_name_elsewhere_receives_nothing(
        self, catalog: CatalogConnection, tmp_path: Path, broken: Callable[[], None]
    ) -> None:
        from dataclasses import replace

        assert not record_application(catalog, application())
        left_long_ago(tmp_path)
        place = {"uri": f"sqlite:///{tmp_path}/other.db", "warehouse": f"file://{tmp_path}/other"}
        other = replace(catalog, properties={**catalog.properties, **place}, references={**catalog.references, **place})
        assert record_application(other, application())
        assert len(all_rows(other)) == 1 and len(waiting(tmp_path)) == 1

    def test_old_leftovers_are_reported_and_stay(
        self, catalog: CatalogConnection, tmp_path: Path, broken: Callable[[], None], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert not record_application(catalog, application())
        base = f"file://{tmp_path}/documents"
        operator = RemoveDocumentsOperator(task_id="t", documents_uri=base)
        assert operator.execute({})["undelivered"] == 0
        left_long_ago(tmp_path)
        assert operator.execute({}) == {"documents": 0, "bytes": 0, "kept": 0, "undelivered": 1}
        (document,) = waiting(tmp_path)
        assert str(document) in capsys.readouterr().out

    def test_without_an_outbox_rows_are_written_anyway(self, catalog: CatalogConnection, tmp_path: Path) -> None:
        (tmp_path / "documents").write_text("a file, no folder")
        assert record_application(catalog, application())
        assert len(all_rows(catalog)) == 1

    def test_an_unresponsive_catalog_delays_no_other_table(
        self, catalog: CatalogConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(outbox, "_ALL", 0.3)
        assert not record_application(catalogs.of_class(catalog, catalogs.Hanging), application())
        catalogs.Hanging.over.set()
        assert len(waiting(tmp_path)) == 1


def test_history_is_empty_where_nothing_is_recorded(catalog: CatalogConnection) -> None:
    assert (history(catalog), health_history(catalog)) == ([], [])
    assert not catalog.load().namespace_exists(names.LAKE_NAMESPACE)


class TestReading:
    """The newest rows come first, and only the requested days are read."""

    @pytest.fixture
    def days(self, catalog: CatalogConnection) -> datetime:
        """Record measurements of today, yesterday, and 40 and 400 days ago; return the time of today's."""
        from dataclasses import replace

        now = datetime.now(UTC)
        for age in (0, 1, 40, 400):
            at = (now - timedelta(days=age)).isoformat()
            ended = application(*(TableReport(f"shop.t{number}", "done", metrics={"age": age}) for number in range(2)))
            assert ended.report is not None
            assert record_application(catalog, replace(ended, report=replace(ended.report, finished_at=at)))
        return now

    def test_the_newest_rows_come_first(self, catalog: CatalogConnection, days: datetime) -> None:
        ages = [row.metrics["age"] for row in history(catalog)]
        assert ages == [0, 0, 1, 1, 40, 40, 400, 400]
        assert [row.metrics["age"] for row in history(catalog, limit=3)] == [0, 0, 1]
        assert [row.metrics["age"] for row in history(catalog, "shop.t1", limit=3)] == [0, 1, 40]
        assert history(catalog, "shop.it's") == []
        since = days - timedelta(days=1, hours=1)
        assert [row.metrics["age"] for row in history(catalog, "shop.t0", since)] == [0, 1]

    def test_older_days_are_not_read(self, catalog: CatalogConnection, days: datetime) -> None:
        table = catalog.load().load_table(AUDIT.name)
        for task in table.scan(f"finished_at < '{(days - timedelta(days=30)).isoformat()}'").plan_files():
            Path(task.file.file_path.removeprefix("file://")).unlink()
        assert len(history(catalog, limit=2)) == 2
        assert len(history(catalog, since=days - timedelta(days=2))) == 4
        with pytest.raises(FileNotFoundError):
            history(catalog)
