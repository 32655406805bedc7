"""Operators assess tables before they start Spark, and start it only for those that may need the job."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from airflow_provider_lakecdc.exceptions import LakecdcJobError
from airflow_provider_lakecdc.hooks.catalog import get_catalog
from airflow_provider_lakecdc.lake import assess_table
from airflow_provider_lakecdc.lake.consumers import register_consumer
from airflow_provider_lakecdc.operators.base import REPORT_URI_KEY, LakecdcJobOperator
from airflow_provider_lakecdc.operators.compact_data_files import CompactDataFilesOperator
from airflow_provider_lakecdc.operators.expire_snapshots import ExpireSnapshotsOperator
from airflow_provider_lakecdc.operators.export_changes import ExportChangesOperator
from airflow_provider_lakecdc.operators.rewrite_delete_files import RewriteDeleteFilesOperator
from airflow_provider_lakecdc.operators.rewrite_manifests import RewriteManifestsOperator
from airflow_provider_lakecdc.operators.sort_data_files import SortDataFilesOperator
from airflow_provider_lakecdc.submit.reporting import REPORT_KEY
from lakecdc.contract.report import parse_report
from lakecdc.metadata import names
from tests.airflow_provider_lakecdc.conftest import FakeSpark, changed
from tests.airflow_provider_lakecdc.tables import FedTable

Context = Any
OPERATORS = (
    RewriteDeleteFilesOperator,
    SortDataFilesOperator,
    CompactDataFilesOperator,
    RewriteManifestsOperator,
    ExpireSnapshotsOperator,
)


@pytest.fixture
def orders(lake: dict[str, str]) -> FedTable:
    """Make a table that needs no work."""
    table = FedTable(lake)
    table.ingest(None)
    return table


def operator(kind: type[LakecdcJobOperator], *tables: str, **arguments: Any) -> LakecdcJobOperator:
    return kind(**{"task_id": "t", "catalog_conn_id": "lake", "tables": list(tables) or ["shop.orders"], **arguments})


@pytest.mark.parametrize("kind", OPERATORS)
def test_an_idle_table_starts_no_spark(
    spark_submit: FakeSpark, context: Context, orders: FedTable, kind: type[LakecdcJobOperator]
) -> None:
    tables = operator(kind).execute(context)
    assert spark_submit.calls == []
    head = str(orders.table.current_snapshot().snapshot_id)  # type: ignore[union-attr]
    facts = tables["shop.orders"]
    assert (facts["outcome"], facts["snapshot_before"], facts["snapshot_after"]) == ("nothing", head, head)
    assert facts["reason"] and facts["metrics"]["data_files_before"] == facts["metrics"]["data_files_after"] == 1
    # it is reported like any other run
    report = parse_report(json.loads(Path(urlsplit(context["ti"].xcom[REPORT_URI_KEY]).path).read_text()))
    assert (report.job, report.spark_application_id, report.tables[0].outcome) == (kind.job_name, None, "nothing")
    assert context["ti"].xcom[REPORT_KEY] == tables


def test_an_exported_table_starts_no_spark(
    spark_submit: FakeSpark, context: Context, orders: FedTable, lake: dict[str, str]
) -> None:
    to_table = {"shop.orders": {"table": "shop.changes"}}
    arguments: dict[str, Any] = {"destinations": to_table}

    def submitted(**further: Any) -> bool:
        before = len(spark_submit.calls)
        operator(ExportChangesOperator, **arguments | further).execute(context)
        return len(spark_submit.calls) > before

    assert submitted(), "the table does not exist yet"
    exports = FedTable(lake, "shop.changes")
    exports.take_changes(orders, orders._head())
    assert not submitted()
    assert submitted(destinations={"shop.orders": {"folder": "/exports"}})
    assert submitted(consumer="export"), "the consumer is not registered yet"
    register_consumer(get_catalog("lake"), "shop.orders", "export")
    assert not submitted(consumer="export")
    orders.table.refresh()
    orders.ingest(None)
    assert submitted()
    exports.take_changes(orders, orders._head())
    assert not submitted()
    assert submitted(consumer="export"), "the consumer is behind"


def test_only_tables_that_may_need_work_go_to_spark(
    spark_submit: FakeSpark, context: Context, orders: FedTable, lake: dict[str, str]
) -> None:
    items = FedTable(lake, "shop.items")
    items.ingest(None)
    items.delete(3)
    task = operator(RewriteDeleteFilesOperator, "shop.orders", "shop.items", side_tables=["shop.orders_lakecdc_files"])
    tables = task.execute(context)
    (call,) = spark_submit.calls
    assert (call["spec"]["tables"], call["spec"]["options"]["side_tables"]) == (["shop.items"], [])
    assert {name: facts["outcome"] for name, facts in tables.items()} == {
        "shop.items": "done",
        "shop.orders": "nothing",
    }
    text = Path(urlsplit(context["ti"].xcom[REPORT_URI_KEY]).path).read_text()
    assert {table["table"] for table in json.loads(text)["tables"]} == set(tables)


def test_a_side_table_alone_starts_spark(
    spark_submit: FakeSpark, context: Context, orders: FedTable, lake: dict[str, str]
) -> None:
    beside = FedTable(lake, "shop.orders_lakecdc_files")
    for _ in range(5):
        beside.ingest(None)
    named = ["shop.orders_lakecdc_files", "shop.orders_lakecdc_deletes"]
    spark_submit.behave({"shop.orders": {"outcome": "nothing"}, named[0]: {}})
    tables = operator(CompactDataFilesOperator, side_tables=named).execute(context)
    (call,) = spark_submit.calls
    assert (call["spec"]["tables"], call["spec"]["options"]["side_tables"]) == (["shop.orders"], named[:1])
    assert {name: facts["outcome"] for name, facts in tables.items()} == {"shop.orders": "nothing", named[0]: "done"}


def with_small_files(table: FedTable) -> None:
    for _ in range(4):
        table.ingest(None)


def with_equality_deletes(table: FedTable) -> None:
    table.delete(1)


def with_position_deletes_of_no_one_file(table: FedTable) -> None:
    table.delete(1, by_position=True)


def with_many_manifests(table: FedTable) -> None:
    for _ in range(8):
        table.ingest(None)


def with_a_job_at_work(table: FedTable) -> None:
    head = table.table.current_snapshot()
    assert head is not None
    table.table.manage_snapshots().create_tag(head.snapshot_id, "lakecdc-job-sort_data_files-1").commit()


def with_declared_bloom_filters(table: FedTable) -> None:
    with table.table.transaction() as transaction:
        transaction.set_properties({names.BLOOM_FILTER_COLUMNS: "id"})


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (partial(CompactDataFilesOperator, add_bloom_filters=True), with_declared_bloom_filters),
        (CompactDataFilesOperator, with_small_files),
        (RewriteDeleteFilesOperator, with_equality_deletes),
        (RewriteDeleteFilesOperator, with_position_deletes_of_no_one_file),
        (RewriteManifestsOperator, with_many_manifests),
        (partial(SortDataFilesOperator, columns=["absent"]), with_small_files),
        (partial(ExpireSnapshotsOperator, max_age=0, retain_last=4), with_small_files),
        (partial(ExpireSnapshotsOperator, max_age=0), with_a_job_at_work),
    ],
)
def test_work_starts_spark(
    spark_submit: FakeSpark, context: Context, orders: FedTable, kind: type[LakecdcJobOperator], change: Any
) -> None:
    change(orders)
    assert operator(kind).execute(context)["shop.orders"]["outcome"] == "done"
    assert len(spark_submit.calls) == 1


def test_the_precheck_can_be_skipped(
    spark_submit: FakeSpark, context: Context, orders: FedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator(CompactDataFilesOperator, look_first=False).execute(context)
    # a dry run is for a person who wants the job's own measurement
    operator(CompactDataFilesOperator, dry_run=True).execute(context)
    # the job itself checks for a missing branch
    operator(CompactDataFilesOperator, branch="audit").execute(context)
    monkeypatch.setenv("AIRFLOW__LAKECDC__LOOK_FIRST", "False")
    operator(CompactDataFilesOperator).execute(context)
    assert len(spark_submit.calls) == 4


def test_unreadable_tables_are_left_to_spark(
    spark_submit: FakeSpark,
    context: Context,
    orders: FedTable,
    lake: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    FedTable(lake, "shop.items").break_metadata()
    tables = operator(CompactDataFilesOperator, "shop.orders", "shop.items", "shop.absent").execute(context)
    assert spark_submit.calls[0]["spec"]["tables"] == ["shop.items", "shop.absent"]
    assert tables["shop.orders"]["outcome"] == "nothing"
    monkeypatch.setattr(assess_table, "MOST_FILES_OF_A_WORKER", 0)
    operator(CompactDataFilesOperator).execute(context)
    assert spark_submit.calls[1]["spec"]["tables"] == ["shop.orders"]


def test_a_job_of_an_earlier_try_is_resumed_without_a_precheck(
    spark_submit: FakeSpark, context: Context, orders: FedTable
) -> None:
    task = operator(CompactDataFilesOperator)
    context["task_state_store"].set(task.stored_keys[0], "driver-1")
    assert not task._precheck(context, task.prepare(context)).idle


def test_an_outcome_in_fail_on_fails_the_task(spark_submit: FakeSpark, context: Context, orders: FedTable) -> None:
    with pytest.raises(LakecdcJobError, match="nothing"):
        operator(CompactDataFilesOperator, fail_on=["nothing"]).execute(changed(context))
    assert spark_submit.calls == []
