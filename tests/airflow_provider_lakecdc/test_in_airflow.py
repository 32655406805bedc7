"""The provider inside Airflow: whole DAG runs, with a stand-in for spark-submit."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_lakecdc.audit import health_history, history
from airflow_provider_lakecdc.hooks.catalog import get_catalog
from airflow_provider_lakecdc.lake.tables import read_watermark
from lakecdc.metadata import names
from lakecdc.metadata.policy import APPROVE
from tests.airflow_provider_lakecdc import home
from tests.airflow_provider_lakecdc.conftest import CATALOG_SECRET, FakeSpark, Install
from tests.airflow_provider_lakecdc.tables import FedTable

FIVE, SIX = "2026-01-01T05:00:00+00:00", "2026-01-01T06:00:00+00:00"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lake: dict[str, str]) -> dict[str, Any]:
    """A configuration of the provider's own DAG files."""
    document = {
        "catalog_conn_id": "lake",
        "source": {"type": "files", "path": f"{tmp_path}/*.jsonl", "format": "debezium-json"},
        "targets": [{"table": "shop.orders", "key": ["id"]}, {"table": "shop.items", "key": ["id"]}],
        "tables_per_application": 1,
        "retries": 0,
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(document))
    monkeypatch.setenv("LAKECDC_CONFIG", str(path))
    return document


def dag_file(name: str) -> str:
    # those of dags/ import these, and a module is imported once per process, whatever the configuration is by then
    return (home.REPOSITORY / "airflow_provider_lakecdc" / "example_dags" / f"{name}.py").read_text()


NAMED = ("shop.orders", "shop.items")


def states(run: Any) -> dict[str, list[str]]:
    """States of the run's task instances by task, in the order of their map indexes."""
    found: dict[str, list[str]] = {}
    for ti in sorted(run.get_task_instances(), key=lambda ti: (ti.task_id, ti.map_index)):
        found.setdefault(ti.task_id, []).append(str(ti.state))
    return found


@pytest.mark.usefixtures("config")
class TestTheProvidersDags:
    """The three DAG files, run as they stand."""

    def test_ingestion(
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
        found = xcoms(run.run_id)
        assert found["report"][0]["shop.orders"]["snapshot_after"] == snapshot
        assert CATALOG_SECRET not in json.dumps(found)
        output = capfd.readouterr()
        assert "shop.orders" in output.out + output.err
        assert CATALOG_SECRET not in output.out + output.err

    def test_what_was_committed_is_announced_whatever_became_of_the_task(
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

        # the worker is lost while its Spark goes on and commits
        first = str(orders.ingest(FIVE))
        spark_submit.behave(report=False, exit=137)
        assert announced() == {"orders": first}
        # the next run finds nothing to do and has nothing to add
        spark_submit.behave({name: {"outcome": "nothing"} for name in ("shop.orders", "shop.items")})
        assert announced() == {}
        # one table fails, the other has been written; maintenance is no news
        second = str(orders.ingest(FIVE))
        orders.delete(1, summary={names.JOB: "rewrite_delete_files"})
        failed = {"outcome": "failed", "failure_class": "unknown", "reason": "x"}
        spark_submit.behave({"shop.items": failed, "shop.orders": {"snapshot_after": second}}, exit=1)
        assert announced() == {"orders": second}
        # what an earlier run has missed, the next one announces; a table that cannot be looked at keeps nothing back
        third = str(orders.ingest(FIVE))
        Path(items.table.metadata_location.removeprefix("file://")).unlink()
        spark_submit.behave({name: {"outcome": "nothing"} for name in ("shop.orders", "shop.items")})
        assert announced() == {"orders": third}
        orders.ingest(FIVE)
        assert announced(run_conf={"dry_run": True}) == {}
        assert ended == ["failed", "success", "failed", "success", "success"]

    @pytest.mark.parametrize(
        ("name", "steps"),
        [
            ("lakecdc_hourly_governance", ["rewrite_delete_files", "compact_data_files"]),
            (
                "lakecdc_nightly_governance",
                [
                    *("rewrite_delete_files", "sort_data_files", "compact_data_files", "rewrite_manifests"),
                    *("tag_snapshots", "expire_snapshots", "clean_side_tables"),
                ],
            ),
            ("lakecdc_weekly_governance", ["expire_partitions", "remove_orphan_files", "compute_statistics"]),
        ],
    )
    def test_governance(
        self, install: Install, spark_submit: FakeSpark, untold: Callable[..., None], name: str, steps: list[str]
    ) -> None:
        untold(*NAMED)
        run = install(name, dag_file(name)).test()
        assert run.state == "success"
        once = dict.fromkeys(("assess", "plan", "report", "finished"), ["success"])
        if "nightly" in name:
            once["remove_documents"] = ["success"]
        # nothing stands beside the tables, and the audit has no old rows
        ran = [step for step in steps if step not in ("clean_side_tables", "expire_partitions")]
        done = {step: ["success" if step in ran else "skipped"] * 2 for step in steps}
        assert states(run) == {**done, **once}
        assert [call["spec"]["job"] for call in spark_submit.calls] == [step for step in ran for _ in range(2)]

    @pytest.mark.parametrize("name", ["lakecdc_hourly_governance", "lakecdc_nightly_governance"])
    def test_tables_that_need_nothing(
        self, install: Install, spark_submit: FakeSpark, lake: dict[str, str], name: str
    ) -> None:
        for table in ("shop.orders", "shop.items"):
            FedTable(lake, table).ingest(FIVE)
        run = install(name, dag_file(name)).test()
        assert run.state == "success"
        ran = {"assess", "plan", "report", "finished", "remove_documents"}
        assert {(task in ran, state) for task, found in states(run).items() for state in found} == {
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
        untold: Callable[..., None],
    ) -> None:
        untold(*NAMED, "a.b")
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
            # of these alone it is known that something stands beside them
            ["a.b"],
        ]
        # the plan has it for the manifests as well
        beside = [call["spec"]["options"].get("side_tables") or [] for call in spark_submit.calls]
        assert beside == [[], [], ["a.lakecdc_quarantine"], [], [], [], []]
        (told,) = [x for x in xcoms(run.run_id)["return_value"] if "outcomes" in x]
        assert told["outcomes"] == {"done": 13, "failed": 2, "left out": 6}
        assert told["failed"] == {
            "rewrite_delete_files shop.items": "no",
            "compact_data_files a.lakecdc_quarantine": "no",
        }

    def test_one_application_does_what_is_planned(
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
        (told,) = [x for x in xcoms(run.run_id)["return_value"] if "outcomes" in x]
        assert told["outcomes"] == {"done": 1}
        # what the plan has predicted is held against what the job takes
        (row,) = history(get_catalog("lake"))
        assert (row.job, row.table, row.outcome) == ("compact_data_files", "shop.orders", "done")
        assert row.guessed_core_seconds and row.predicted_core_seconds == row.guessed_core_seconds
        assert {each.table for each in health_history(get_catalog("lake"))} == {"shop.orders", "shop.items"}

    def test_a_group_of_which_nothing_is_known_is_left_alone(
        self, install: Install, spark_submit: FakeSpark, untold: Callable[..., None]
    ) -> None:
        untold(*NAMED)
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
        untold: Callable[..., None],
    ) -> None:
        untold(*NAMED)
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

    def test_tables_that_a_pattern_finds(
        self,
        install: Install,
        spark_submit: FakeSpark,
        config: dict[str, Any],
        lake: dict[str, str],
        tmp_path: Path,
        untold: Callable[..., None],
    ) -> None:
        untold("crm.people")
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
        asked = sorted((call["spec"]["job"], call["spec"]["tables"]) for call in spark_submit.calls)
        assert asked == [("compact_data_files", ["crm.people"]), ("rewrite_delete_files", ["crm.people"])]
        (told,) = xcoms(run.run_id)["tables"]
        assert told["shop.others"]["jobs"] == [] and "shop.tmp_1" not in told
        # one that comes later needs no other DAG
        later = FedTable(lake, "shop.later")
        for _ in range(12):
            later.ingest(None)
        assert states(dag.test())["compact_data_files"] == ["success"] * 2
        assert ["shop.later"] in [call["spec"]["tables"] for call in spark_submit.calls]
        (tmp_path / "config.json").write_text(json.dumps({**config, "tables": ["nothing.*"]}))
        none = install("lakecdc_hourly_governance", dag_file("lakecdc_hourly_governance")).test()
        assert none.state == "success"
        assert states(none) == {"rewrite_delete_files": ["skipped"], "compact_data_files": ["skipped"], **done}

    def test_a_catalog_that_cannot_be_listed_fails_the_run(
        self, install: Install, spark_submit: FakeSpark, config: dict[str, Any], tmp_path: Path
    ) -> None:
        (tmp_path / "config.json").write_text(json.dumps({**config, "tables": ["*"]}))
        (tmp_path / "catalog.db").write_text("no database")
        run = install("lakecdc_nightly_governance", dag_file("lakecdc_nightly_governance")).test()
        assert run.state == "failed" and spark_submit.calls == []
        found = states(run)
        assert found.pop("assess") == ["failed"]
        assert [found.pop(task) for task in ("remove_documents", "report")] == [["success"]] * 2
        assert {tuple(of_step) for of_step in found.values()} == {("upstream_failed",)}

    def test_a_run_is_narrowed_by_its_conf(
        self, install: Install, spark_submit: FakeSpark, untold: Callable[..., None]
    ) -> None:
        untold(*NAMED)
        dag = install("lakecdc_nightly_governance", dag_file("lakecdc_nightly_governance"))
        run = dag.test(run_conf={"tables": ["shop.items"], "dry_run": True})
        assert run.state == "success"
        found = states(run)
        assert {tuple(of_step) for of_step in found.values()} == {("success",)}
        assert {tuple(call["spec"]["tables"]) for call in spark_submit.calls} == {("shop.items",)}
        assert all(call["spec"]["options"]["dry_run"] is True for call in spark_submit.calls)

    @pytest.mark.parametrize("name", ["lakecdc_ingest", "lakecdc_nightly_governance"])
    def test_a_key_that_nobody_looks_at_is_refused(
        self, install: Install, spark_submit: FakeSpark, capfd: pytest.CaptureFixture[str], name: str
    ) -> None:
        run = install(name, dag_file(name)).test(run_conf={"table": ["shop.items"], "dry_run": True})
        assert run.state == "failed" and spark_submit.calls == []
        assert "Did you mean 'tables'" in capfd.readouterr().out
        # what goes on after failures has not been told what was meant either
        assert states(run).get("remove_documents", ["failed"]) == ["failed"]

    def test_a_cleared_run_submits_again(self, install: Install, spark_submit: FakeSpark) -> None:
        from airflow.sdk import timezone

        dag = install("lakecdc_ingest", dag_file("lakecdc_ingest"))
        moment = timezone.datetime(2026, 2, 1)
        for _ in range(2):
            # dag.test clears the task instances of a date it has run before
            assert dag.test(logical_date=moment).state == "success"
        assert len(spark_submit.calls) == 4


ORPHANS = "remove_orphan_files"
#: what a dry run reports of a table in which it has found something
FOUND = {"orphan_files": 3, "orphan_bytes": 4096, "findings": {"uri": "file:///found.jsonl", "sha256": "4f"}}


class TestAnApproval:
    """A run of the weekly DAG in which a person is asked about two of three tables."""

    @pytest.fixture
    def run(
        self,
        install: Install,
        spark_submit: FakeSpark,
        config: dict[str, Any],
        lake: dict[str, str],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> Callable[[Callable[[Any, Any], None]], Any]:
        """Runs the DAG; what it is given answers when the run waits for nothing else."""
        changes = {
            "tables": ["shop.orders", "shop.items", "shop.free"],
            "options": {ORPHANS: {"dry_run": False}},
            "policy": {"shop.orders": {"approve": [ORPHANS], "owner": "sales"}},
            "statistics": False,
            "tables_per_application": 0,
        }
        (tmp_path / "config.json").write_text(json.dumps({**config, **changes}))
        for name in ("orders", "items", "free"):
            FedTable(lake, f"shop.{name}").ingest(FIVE)
        with FedTable.open(lake).load_table("shop.items").transaction() as transaction:
            transaction.set_properties({APPROVE: ORPHANS})
        spark_submit.behave({f"shop.{name}": {"metrics": FOUND} for name in ("orders", "items", "free")})
        return lambda answer: self.ran(install, monkeypatch, answer)

    def ran(self, install: Install, monkeypatch: pytest.MonkeyPatch, answer: Callable[[Any, Any], None]) -> Any:
        from airflow.models.hitl import HITLDetail
        from airflow.utils.session import create_session

        sleep = time.sleep

        def asked(seconds: float) -> None:
            # dag.test sleeps while it waits for an answer
            with create_session() as session:
                for request in session.query(HITLDetail).filter(HITLDetail.responded_at.is_(None)).all():
                    answer(request, session)
            sleep(min(seconds, 0.01))

        monkeypatch.setattr(time, "sleep", asked)
        return install("lakecdc_weekly_governance", dag_file("lakecdc_weekly_governance")).test()

    def test_a_person_approves_one_of_two_tables(self, run: Any, spark_submit: FakeSpark) -> None:
        from airflow.api_fastapi.core_api.datamodels.hitl import UpdateHITLDetailPayload
        from airflow.api_fastapi.core_api.routes.public.hitl import update_hitl_detail

        seen: list[Any] = []

        def approve(request: Any, session: Any) -> None:
            ti = request.task_instance
            seen.append((request.options, request.body, states(ti.dag_run)))
            user: Any = SimpleNamespace(get_id=lambda: "7", get_name=lambda: "ada")
            chosen = UpdateHITLDetailPayload(chosen_options=["shop.items"], params_input={})
            update_hitl_detail(ti.dag_id, ti.run_id, ti.task_id, chosen, user, session)

        ended = run(approve)
        assert ended.state == "success"
        ((options, body, meanwhile),) = seen
        assert options == ["none of them", "shop.orders", "shop.items"]
        assert "| shop.orders | sales | 3 | 4,096 |  |  | file:///found.jsonl | 4f |" in body
        # who needs no approval does not wait for it
        assert (meanwhile[ORPHANS], meanwhile["report"]) == (["success"], ["success"])
        free, dry, real = spark_submit.calls
        asked = {call["spec"]["tables"][0]: call["spec"]["options"] for call in (free, real)}
        assert dry["spec"]["tables"] == ["shop.orders", "shop.items"] and dry["spec"]["options"]["dry_run"] is True
        assert (free["spec"]["tables"], asked["shop.free"]["approved"]) == (["shop.free"], None)
        assert real["spec"]["tables"] == ["shop.items"] and asked["shop.items"]["dry_run"] is False
        assert asked["shop.items"]["approved"] == {"shop.items": FOUND["findings"]}
        told = [x["outcomes"] for x in xcoms(ended.run_id)["return_value"] if "outcomes" in x]
        assert {"done": 1, "a person is asked": 2} in told and {"done": 1, "not approved": 1} in told

    def test_no_answer_is_a_no(self, run: Any, spark_submit: FakeSpark) -> None:
        from airflow.jobs.scheduler_job_runner import SchedulerJobRunner

        def time_is_up(request: Any, session: Any) -> None:
            request.task_instance.trigger_timeout -= timedelta(days=5, seconds=1)
            session.commit()
            scheduler: Any = SimpleNamespace(log=logging.getLogger())
            SchedulerJobRunner.check_awaiting_input_timeouts(scheduler, session=session)

        ended = run(time_is_up)
        assert ended.state == "success"
        assert states(ended)[f"{ORPHANS}_approval"] == ["success"]
        assert states(ended)[f"{ORPHANS}_approved"] == ["skipped"]
        assert [call["spec"]["options"]["dry_run"] for call in spark_submit.calls] == [False, True]

    def test_nobody_is_asked_where_nothing_was_found(self, run: Any, spark_submit: FakeSpark) -> None:
        spark_submit.behave()
        ended = run(lambda *_: pytest.fail("nobody is to be asked"))
        assert ended.state == "success"
        assert states(ended)[f"{ORPHANS}_approval"] == states(ended)[f"{ORPHANS}_approved"] == ["skipped"]
        # of the dry run
        told = [x["outcomes"] for x in xcoms(ended.run_id)["return_value"] if "outcomes" in x]
        assert {"done": 2} in told


RETRYING = """
from datetime import timedelta
from airflow.sdk import DAG
from airflow_provider_lakecdc.operators.rewrite_manifests import RewriteManifestsOperator
from airflow_provider_lakecdc.submit.retry_policy import retry_policy

with DAG("retrying", schedule=None):
    RewriteManifestsOperator.partial(
        task_id="rewrite_manifests",
        catalog_conn_id="lake",
        retries=2,
        retry_delay=timedelta(0),
        retry_policy=retry_policy(timedelta(0)),
    ).expand(tables=[["shop.orders"]])
"""


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize(("failure_class", "tries"), [("conflict", 3), ("unknown", 3), ("bad input", 1)])
def test_the_class_of_a_failure_decides_on_the_retry(
    install: Install, spark_submit: FakeSpark, failure_class: str, tries: int
) -> None:
    outcome = {"outcome": "failed", "failure_class": failure_class, "reason": "x"}
    spark_submit.behave({"shop.orders": outcome}, exit=1)
    run = install("retrying", RETRYING).test()
    assert states(run) == {"rewrite_manifests": ["failed"]}
    assert len(spark_submit.calls) == tries


WAITING = """
from airflow.sdk import DAG
from airflow_provider_lakecdc.sensors.watermark import IcebergWatermarkSensor

with DAG("waiting", schedule=None):
    for deferrable in (False, True):
        IcebergWatermarkSensor(
            task_id=f"deferrable_{deferrable}".lower(), table="shop.orders", catalog_conn_id="lake",
            moment="{{ dag_run.conf['moment'] }}", deferrable=deferrable, poke_interval=0.1, timeout=TIMEOUT,
        )
"""


class TestTheSensor:
    """Both ways of waiting, in a DAG run and against a real catalog."""

    def test_it_passes_once_the_moment_is_reached(self, install: Install, lake: dict[str, str]) -> None:
        orders = FedTable(lake)
        orders.ingest(SIX)
        orders.maintain()
        run = install("waiting", WAITING.replace("TIMEOUT", "60")).test(run_conf={"moment": FIVE})
        assert states(run) == {"deferrable_false": ["success"], "deferrable_true": ["success"]}
        assert xcoms(run.run_id)["return_value"] == [SIX, SIX]

    def test_a_deferred_one_goes_on_when_the_table_is_fed(
        self, install: Install, lake: dict[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        orders = FedTable(lake)
        orders.ingest(FIVE)
        looks: list[Any] = []

        def feed_after_the_first_look(*arguments: Any) -> Any:
            looks.append(found := read_watermark(*arguments))
            if len(looks) == 1:
                orders.ingest(SIX)
            return found

        monkeypatch.setattr("airflow_provider_lakecdc.triggers.watermark.read_watermark", feed_after_the_first_look)
        source = WAITING.replace("TIMEOUT", "60").replace("(False, True)", "(True,)")
        run = install("waiting", source).test(run_conf={"moment": SIX})
        assert states(run) == {"deferrable_true": ["success"]}
        assert len(looks) == 2


def asset_events(run_id: str) -> dict[str, dict[str, Any]]:
    """Extras by URI of the asset events that a run has raised."""
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session

    with create_session() as session:
        events = session.query(AssetEvent).filter(AssetEvent.source_run_id == run_id).all()
        return {event.asset.uri: event.extra for event in events}


def xcoms(run_id: str) -> dict[str, list[Any]]:
    """A run's XCom values by key, in the order of their map indexes."""
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session

    found: dict[str, list[Any]] = {}
    with create_session() as session:
        rows = session.query(XComModel).filter(XComModel.run_id == run_id).order_by(XComModel.map_index).all()
        for row in rows:
            found.setdefault(row.key, []).append(row.value)
    return found


DEBT = """
from airflow.sdk import DAG
from airflow_provider_lakecdc.operators.rewrite_delete_files import RewriteDeleteFilesOperator
from airflow_provider_lakecdc.sensors.delete_debt import DeleteDebtSensor

with DAG("debt", schedule=None):
    debt = DeleteDebtSensor(
        task_id="debt", tables=["shop.items", "shop.orders"], catalog_conn_id="lake", max_equality_delete_files=1,
        deferrable=True, poke_interval=0.1, timeout=60,
    )
    RewriteDeleteFilesOperator(task_id="pay", tables=debt.output, catalog_conn_id="lake")
"""


def test_the_tables_in_debt_are_handed_to_an_operator(
    install: Install, spark_submit: FakeSpark, lake: dict[str, str]
) -> None:
    orders, items = FedTable(lake), FedTable(lake, "shop.items")
    orders.delete(1, 1)
    items.delete(1)
    run = install("debt", DEBT).test()
    assert states(run) == {"debt": ["success"], "pay": ["success"]}
    assert [call["spec"]["tables"] for call in spark_submit.calls] == [["shop.orders"]]
