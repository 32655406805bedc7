"""Runs of the ingest DAG."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lakecdc.metadata import names
from tests.airflow_provider_lakecdc.conftest import CATALOG_SECRET, FakeSpark, Install
from tests.airflow_provider_lakecdc.dag_runs.support import FIVE, asset_events, dag_file, states, xcoms
from tests.airflow_provider_lakecdc.tables import FedTable


@pytest.mark.usefixtures("config")
class TestIngestion:
    """The DAG file, run unchanged."""

    def test_tables_are_fed_and_announced(
        self, install: Install, spark_submit: FakeSpark, lake: dict[str, str], capfd: pytest.CaptureFixture[str]
    ) -> None:
        snapshot = str(FedTable(lake).ingest(FIVE))
        spark_submit.behave(
            {"shop.orders": {"snapshot_after": snapshot}, "shop.items": {"outcome": "nothing", "reason": "no change"}}
        )
        run = install("lakecdc_ingest", dag_file("lakecdc_ingest")).test()
        assert states(run) == {"ingest": ["success", "success"], "announce": ["success"], "finished": ["success"]}
        # the scheduler may begin mapped tasks in any order
        assert sorted(call["spec"]["tables"] for call in spark_submit.calls) == [["shop.items"], ["shop.orders"]]
        ((uri, extra),) = asset_events(run.run_id).items()
        assert uri == "iceberg://lake/shop.orders"
        assert (extra["snapshot_after"], extra["metrics"]) == (snapshot, {"rows": 3})
        mapped = sorted((ti for ti in run.get_task_instances() if ti.task_id == "ingest"), key=lambda ti: ti.map_index)
        assert [ti.rendered_map_index for ti in mapped] == ["shop.orders", "shop.items"]
        xcom_values = xcoms(run.run_id)
        assert xcom_values["report"][0]["shop.orders"]["snapshot_after"] == snapshot
        assert CATALOG_SECRET not in json.dumps(xcom_values)
        output = capfd.readouterr()
        assert "shop.orders" in output.out + output.err
        assert CATALOG_SECRET not in output.out + output.err

    def test_committed_writes_are_announced_despite_a_failed_task(
        self, install: Install, spark_submit: FakeSpark, lake: dict[str, str]
    ) -> None:
        orders, items = FedTable(lake), FedTable(lake, "shop.items")
        dag = install("lakecdc_ingest", dag_file("lakecdc_ingest"))

        ended: list[str] = []

        def announced(**test: Any) -> dict[str, str]:
            run = dag.test(**test)
            assert states(run)["announce"] == ["skipped" if test else "success"]
            assert run.state == ("failed" if "failed" in states(run)["ingest"] else "success")
            ended.append(run.state)
            return {uri[-6:]: extra["snapshot_after"] for uri, extra in asset_events(run.run_id).items()}

        # the worker is lost while its Spark application goes on and commits
        first = str(orders.ingest(FIVE))
        spark_submit.behave(report=False, exit=137)
        assert announced() == {"orders": first}
        # the next run has nothing to do and nothing to add
        spark_submit.behave({name: {"outcome": "nothing"} for name in ("shop.orders", "shop.items")})
        assert announced() == {}
        # one table fails, the other was written; maintenance is not announced
        second = str(orders.ingest(FIVE))
        orders.delete(1, summary={names.JOB: "rewrite_delete_files"})
        failed = {"outcome": "failed", "failure_class": "unknown", "reason": "x"}
        spark_submit.behave({"shop.items": failed, "shop.orders": {"snapshot_after": second}}, exit=1)
        assert announced() == {"orders": second}
        # the next run announces what an earlier one missed; an unreadable table does not block others
        third = str(orders.ingest(FIVE))
        Path(items.table.metadata_location.removeprefix("file://")).unlink()
        spark_submit.behave({name: {"outcome": "nothing"} for name in ("shop.orders", "shop.items")})
        assert announced() == {"orders": third}
        orders.ingest(FIVE)
        assert announced(run_conf={"dry_run": True}) == {}
        assert ended == ["failed", "success", "failed", "success", "success"]

    @pytest.mark.parametrize(
        "name", ["lakecdc_ingest", pytest.param("lakecdc_nightly_governance", marks=pytest.mark.soak)]
    )
    def test_an_unused_option_is_refused(
        self, install: Install, spark_submit: FakeSpark, capfd: pytest.CaptureFixture[str], name: str
    ) -> None:
        run = install(name, dag_file(name)).test(run_conf={"table": ["shop.items"], "dry_run": True})
        assert run.state == "failed" and spark_submit.calls == []
        assert "Did you mean 'tables'" in capfd.readouterr().out
        # tasks that run after failures do not get the refused options either
        assert states(run).get("remove_documents", ["failed"]) == ["failed"]

    def test_a_cleared_run_submits_again(self, install: Install, spark_submit: FakeSpark) -> None:
        from airflow.sdk import timezone

        dag = install("lakecdc_ingest", dag_file("lakecdc_ingest"))
        moment = timezone.datetime(2026, 2, 1)
        for _ in range(2):
            # dag.test clears the task instances of a date it has run before
            assert dag.test(logical_date=moment).state == "success"
        assert len(spark_submit.calls) == 4
