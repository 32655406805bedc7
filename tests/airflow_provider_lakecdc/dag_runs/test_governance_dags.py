"""Runs of the governance DAGs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_lakecdc.audit import health_history, history
from airflow_provider_lakecdc.hooks.catalog import get_catalog
from tests.airflow_provider_lakecdc.conftest import FakeSpark, Install
from tests.airflow_provider_lakecdc.dag_runs.support import FIVE, dag_file, states, xcoms
from tests.airflow_provider_lakecdc.tables import FedTable

NAMED = ("shop.orders", "shop.items")


@pytest.mark.usefixtures("config")
class TestGovernance:
    """The three DAG files, run unchanged."""

    @pytest.mark.parametrize(
        ("name", "steps"),
        [
            # other tests here run this DAG, and those of an approval the weekly one
            pytest.param(
                "lakecdc_hourly_governance", ["rewrite_delete_files", "compact_data_files"], marks=pytest.mark.soak
            ),
            (
                "lakecdc_nightly_governance",
                [
                    *("rewrite_delete_files", "sort_data_files", "compact_data_files", "rewrite_manifests"),
                    *("tag_snapshots", "expire_snapshots", "clean_side_tables"),
                ],
            ),
            pytest.param(
                "lakecdc_weekly_governance",
                ["expire_partitions", "remove_orphan_files", "compute_statistics"],
                marks=pytest.mark.soak,
            ),
        ],
    )
    def test_all_steps_run(
        self, install: Install, spark_submit: FakeSpark, unassessable: Callable[..., None], name: str, steps: list[str]
    ) -> None:
        unassessable(*NAMED)
        run = install(name, dag_file(name)).test()
        assert run.state == "success"
        once = dict.fromkeys(("assess", "plan", "report", "finished"), ["success"])
        if "nightly" in name:
            once["remove_documents"] = ["success"]
        # the tables have no side tables, and the audit has no old rows
        ran = [step for step in steps if step not in ("clean_side_tables", "expire_partitions")]
        done = {step: ["success" if step in ran else "skipped"] * 2 for step in steps}
        assert states(run) == {**done, **once}
        assert [call["spec"]["job"] for call in spark_submit.calls] == [step for step in ran for _ in range(2)]

    @pytest.mark.parametrize(
        "name",
        [pytest.param("lakecdc_hourly_governance", marks=pytest.mark.soak), "lakecdc_nightly_governance"],
    )
    def test_idle_tables_are_skipped(
        self, install: Install, spark_submit: FakeSpark, lake: dict[str, str], name: str
    ) -> None:
        for table in ("shop.orders", "shop.items"):
            FedTable(lake, table).ingest(FIVE)
        run = install(name, dag_file(name)).test()
        assert run.state == "success"
        ran = {"assess", "plan", "report", "finished", "remove_documents"}
        assert {(task in ran, state) for task, task_states in states(run).items() for state in task_states} == {
            (True, "success"),
            (False, "skipped"),
        }
        assert spark_submit.calls == []
        (assessment,) = xcoms(run.run_id)["tables"]
        assert {facts["score"] for facts in assessment.values()} == {100.0}

    def test_a_failing_table_ends_its_own_chain_only(
        self,
        install: Install,
        spark_submit: FakeSpark,
        config: dict[str, Any],
        lake: dict[str, str],
        tmp_path: Path,
        unassessable: Callable[..., None],
    ) -> None:
        unassessable(*NAMED, "a.b")
        together = {
            **config,
            "tables_per_application": 0,
            "targets": [*config["targets"], {"table": "a.b", "key": ["k"]}],
        }
        (tmp_path / "config.json").write_text(json.dumps(together))
        quarantine = FedTable(lake, "a.lakecdc_quarantine")
        for _ in range(9):
            quarantine.ingest(FIVE)
        failed = {"outcome": "failed", "failure_class": "bad input", "reason": "no"}
        spark_submit.behave({"shop.items": failed, "a.lakecdc_quarantine": failed}, exit=4)
        run = install("lakecdc_nightly_governance", dag_file("lakecdc_nightly_governance")).test()
        assert run.state == "failed"
        assert states(run) == {
            "rewrite_delete_files": ["failed"],
            "sort_data_files": ["success"],
            "compact_data_files": ["failed"],
            "rewrite_manifests": ["success"],
            "tag_snapshots": ["success"],
            "expire_snapshots": ["success"],
            "clean_side_tables": ["success"],
            "remove_documents": ["success"],
            "finished": ["upstream_failed"],
            **dict.fromkeys(("assess", "plan", "report"), ["success"]),
        }
        assert [call["spec"]["tables"] for call in spark_submit.calls] == [
            ["shop.orders", "shop.items", "a.b"],
            *[["shop.orders", "a.b"]] * 5,
            # only these are known to have side tables
            ["a.b"],
        ]
        # the plan expects it for the manifests as well
        beside = [call["spec"]["options"].get("side_tables") or [] for call in spark_submit.calls]
        assert beside == [[], [], ["a.lakecdc_quarantine"], [], [], [], []]
        (report,) = [x for x in xcoms(run.run_id)["return_value"] if "outcomes" in x]
        assert report["outcomes"] == {"done": 13, "failed": 2, "left out": 6}
        assert report["failed"] == {
            "rewrite_delete_files shop.items": "no",
            "compact_data_files a.lakecdc_quarantine": "no",
        }

    def test_one_application_runs_all_planned_work(
        self,
        install: Install,
        spark_submit: FakeSpark,
        config: dict[str, Any],
        lake: dict[str, str],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setenv("AIRFLOW__LAKECDC__AUDIT", "True")
        (tmp_path / "config.json").write_text(json.dumps({**config, "one_application": True}))
        dag = install("lakecdc_hourly_governance", dag_file("lakecdc_hourly_governance"))
        for name, files in (("shop.orders", 12), ("shop.items", 1)):
            table = FedTable(lake, name)
            for _ in range(files):
                table.ingest(FIVE)
        run = dag.test()
        assert run.state == "success"
        assert states(run) == dict.fromkeys(("assess", "plan", "govern", "report", "finished"), ["success"])
        (call,) = spark_submit.calls
        (step,) = call["spec"]["options"]["steps"]
        assert (call["spec"]["job"], step["job"], step["tables"]) == ("govern", "compact_data_files", ["shop.orders"])
        assert step["options"]["min_input_files"] == 8
        (report,) = [x for x in xcoms(run.run_id)["return_value"] if "outcomes" in x]
        assert report["outcomes"] == {"done": 1}
        # the plan's prediction is compared with the job's actual cost
        (row,) = history(get_catalog("lake"))
        assert (row.job, row.table, row.outcome) == ("compact_data_files", "shop.orders", "done")
        assert row.guessed_core_seconds and row.predicted_core_seconds == row.guessed_core_seconds
        assert {each.table for each in health_history(get_catalog("lake"))} == {"shop.orders", "shop.items"}

    def test_an_unknown_group_is_ignored(
        self, install: Install, spark_submit: FakeSpark, unassessable: Callable[..., None]
    ) -> None:
        unassessable(*NAMED)
        spark_submit.behave(report=False, exit=1)
        run = install("lakecdc_hourly_governance", dag_file("lakecdc_hourly_governance")).test()
        assert run.state == "failed"
        assert states(run)["compact_data_files"] == ["skipped", "skipped"]
        assert len(spark_submit.calls) == 2

    def test_tables_without_a_retention_are_searched_for_orphans_too(
        self,
        install: Install,
        spark_submit: FakeSpark,
        config: dict[str, Any],
        tmp_path: Path,
        unassessable: Callable[..., None],
    ) -> None:
        unassessable(*NAMED)
        retention = {"shop.items": {"time_column": "at", "max_age": 86400}}
        (tmp_path / "config.json").write_text(json.dumps({**config, "retention": retention}))
        run = install("lakecdc_weekly_governance", dag_file("lakecdc_weekly_governance")).test()
        assert run.state == "success"
        twice = ["success", "success"]
        assert states(run) == {
            **dict.fromkeys(("assess", "plan", "report"), ["success"]),
            "expire_partitions": ["success", "skipped"],
            "remove_orphan_files": twice,
            "compute_statistics": twice,
            "finished": ["success"],
        }

    def test_tables_matching_a_pattern_are_governed(
        self,
        install: Install,
        spark_submit: FakeSpark,
        config: dict[str, Any],
        lake: dict[str, str],
        tmp_path: Path,
        unassessable: Callable[..., None],
    ) -> None:
        unassessable("crm.people")
        for name in ("orders", "items", "tmp_1", "others"):
            FedTable(lake, f"shop.{name}").delete(1)
        changes = {
            "tables": ["shop.*", "!shop.tmp_*", "crm.people"],
            "policy": {"shop.*": {"allow": ["compact_data_files"]}, "shop.others": {"allow": []}},
        }
        (tmp_path / "config.json").write_text(json.dumps({**config, **changes}))
        dag = install("lakecdc_hourly_governance", dag_file("lakecdc_hourly_governance"))
        run = dag.test()
        assert run.state == "success"
        done = dict.fromkeys(("assess", "plan", "report", "finished"), ["success"])
        assert states(run) == {"rewrite_delete_files": ["success"], "compact_data_files": ["success"], **done}
        submitted = sorted((call["spec"]["job"], call["spec"]["tables"]) for call in spark_submit.calls)
        assert submitted == [("compact_data_files", ["crm.people"]), ("rewrite_delete_files", ["crm.people"])]
        (assessment,) = xcoms(run.run_id)["tables"]
        assert assessment["shop.others"]["jobs"] == [] and "shop.tmp_1" not in assessment
        # a table created later needs no DAG change
        later = FedTable(lake, "shop.later")
        for _ in range(12):
            later.ingest(None)
        assert states(dag.test())["compact_data_files"] == ["success"] * 2
        assert ["shop.later"] in [call["spec"]["tables"] for call in spark_submit.calls]

    @pytest.mark.soak
    def test_a_pattern_without_matches_succeeds(
        self, install: Install, config: dict[str, Any], lake: dict[str, str], tmp_path: Path
    ) -> None:
        FedTable(lake).delete(1)
        (tmp_path / "config.json").write_text(json.dumps({**config, "tables": ["nothing.*"]}))
        none = install("lakecdc_hourly_governance", dag_file("lakecdc_hourly_governance")).test()
        assert none.state == "success"
        done = dict.fromkeys(("assess", "plan", "report", "finished"), ["success"])
        assert states(none) == {"rewrite_delete_files": ["skipped"], "compact_data_files": ["skipped"], **done}

    @pytest.mark.sqlite
    def test_a_catalog_that_cannot_be_listed_fails_the_run(
        self, install: Install, spark_submit: FakeSpark, config: dict[str, Any], tmp_path: Path
    ) -> None:
        (tmp_path / "config.json").write_text(json.dumps({**config, "tables": ["*"]}))
        (tmp_path / "catalog.db").write_text("no database")
        run = install("lakecdc_nightly_governance", dag_file("lakecdc_nightly_governance")).test()
        assert run.state == "failed" and spark_submit.calls == []
        states_by_task = states(run)
        assert states_by_task.pop("assess") == ["failed"]
        assert [states_by_task.pop(task) for task in ("remove_documents", "report")] == [["success"]] * 2
        assert {tuple(of_step) for of_step in states_by_task.values()} == {("upstream_failed",)}

    def test_the_run_conf_selects_tables(
        self, install: Install, spark_submit: FakeSpark, unassessable: Callable[..., None]
    ) -> None:
        unassessable(*NAMED)
        dag = install("lakecdc_nightly_governance", dag_file("lakecdc_nightly_governance"))
        run = dag.test(run_conf={"tables": ["shop.items"], "dry_run": True})
        assert run.state == "success"
        states_by_task = states(run)
        assert {tuple(of_step) for of_step in states_by_task.values()} == {("success",)}
        assert {tuple(call["spec"]["tables"]) for call in spark_submit.calls} == {("shop.items",)}
        assert all(call["spec"]["options"]["dry_run"] is True for call in spark_submit.calls)
