"""The DAGs made by the templates."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk import Asset, AssetAny, AssetOrTimeSchedule, CronDataIntervalTimetable, ExceptionRetryPolicy
from airflow.sdk.api.datamodels._generated import DagRunType
from airflow.sdk.definitions.mappedoperator import MappedOperator
from airflow.sdk.exceptions import ParamValidationError
from airflow.serialization.serialized_objects import DagSerialization, LazyDeserializedDAG

from airflow_provider_lakecdc.observe.assets import table_asset, tables_alias
from airflow_provider_lakecdc.operators.remove_documents import RemoveDocumentsOperator
from airflow_provider_lakecdc.operators.replay_quarantine import ReplayQuarantineOperator
from airflow_provider_lakecdc.submit.submission import typed_options
from airflow_provider_lakecdc.templates import (
    LakeConfig,
    SparkConfig,
    hourly_governance_dag,
    ingest_dag,
    nightly_governance_dag,
    replay_quarantine_dag,
    weekly_governance_dag,
)
from airflow_provider_lakecdc.templates.config import Retention
from airflow_provider_lakecdc.templates.schedules import Schedules
from airflow_provider_lakecdc.templates.steps import FINISHED
from lakecdc.contract.errors import SpecError
from lakecdc.contract.fields import parse
from lakecdc.contract.options import OPTIONS
from lakecdc.metadata import names
from lakecdc.metadata.debt import DebtLimits
from lakecdc.metadata.policy import TablePolicy, Window

#: tasks without tables
APART = (FINISHED, "announce", "remove_documents")
POSTGRES = {"type": "postgres", "slot": "s"}
TARGETS = tuple({"table": f"shop.t{i}", "key": ["id"]} for i in range(3))


def config(**changes: Any) -> LakeConfig:
    defaults = {"catalog_conn_id": "lake", "source": POSTGRES, "source_conn_id": "shop_db", "targets": TARGETS}
    return LakeConfig(**{**defaults, **changes})


def steps(dag: Any) -> list[MappedOperator]:
    mapped = [task for task in dag.tasks if task.task_id not in ("assess", "plan", "report", *APART)]
    assert all(isinstance(task, MappedOperator) for task in mapped)
    return mapped


def _with(params: Any, conf: dict[str, Any]) -> Any:
    changed = copy.deepcopy(params)
    changed.update(conf)
    return changed


BY_TIME = {"type": "jdbc", "url": "jdbc:postgresql://h/d", "cursor_column": "c"}
RETENTION = {"shop.t1": Retention("at", 86400.0)}
RELOAD: dict[Any, dict[str, None]] = {ingest_dag: {"reload": None}}
FACTORIES = (ingest_dag, hourly_governance_dag, nightly_governance_dag, weekly_governance_dag)
#: steps that only report by default
DRY = ("remove_orphan_files",)


@pytest.mark.parametrize("factory", FACTORIES)
class TestEveryDag:
    """Properties of every DAG."""

    def test_runs_have_intervals_and_are_sequential(self, factory: Any) -> None:
        dag = factory(config())
        assert isinstance(dag.timetable, CronDataIntervalTimetable)
        assert dag.catchup is False
        assert dag.max_active_runs == 1
        assert dag.doc_md and "shop.t0" in dag.doc_md
        assert dag.start_date is not None

    def test_without_a_schedule_it_is_triggered_by_hand(self, factory: Any) -> None:
        never = Schedules(ingest=None, hourly_governance=None, nightly_governance=None, weekly_governance=None)
        assert factory(config(schedules=never)).schedule is None

    def test_each_step_is_mapped_and_retried_by_class_of_failure(self, factory: Any) -> None:
        for task in steps(factory(config(pool="lake", retries=5))):
            assert isinstance(task.partial_kwargs["retry_policy"], ExceptionRetryPolicy)
            assert task.partial_kwargs["pool"] == "lake"
            assert "task.tables" in task.partial_kwargs["map_index_template"]
            assert task.retries == 5
            assert task.retry_delay == timedelta(minutes=1)

    def test_spark_settings_reach_each_step(self, factory: Any) -> None:
        spark = SparkConfig(conn_id="spark_x", conf={"a": "b"}, driver_memory="3g")
        for task in steps(factory(config(spark=spark))):
            operator: Any = task.unmap({"tables": ["shop.t0"]})
            assert (operator._conn_id, operator.conf, operator._driver_memory) == ("spark_x", {"a": "b"}, "3g")

    def test_a_run_accepts_known_parameters_and_refuses_others(self, factory: Any) -> None:
        dag = factory(config())
        assert dag.params.validate() == {"tables": None, "dry_run": False, **RELOAD.get(factory, {})}
        for task in steps(dag):
            assert task.partial_kwargs["strict_run_conf"] is True
            assert task.partial_kwargs["dry_run"] == (True if task.task_id in DRY else "{{ params.dry_run }}")
        for wrong in ({"tables": ["shop.t9"]}, {"tables": "shop.t0"}, {"dry_run": "perhaps"}):
            with pytest.raises(ParamValidationError):
                _with(dag.params, wrong).validate()
        assert _with(dag.params, {"tables": ["shop.t1"], "dry_run": True}).validate()

    def test_dry_configuration_stays_dry(self, factory: Any) -> None:
        options = {job: {"dry_run": True} for job in OPTIONS}
        assert all(task.partial_kwargs["dry_run"] is True for task in steps(factory(config(options=options))))

    def test_it_has_the_configured_owner(self, factory: Any) -> None:
        # the owner in the DAG processor's data, where mapped tasks have none
        assert LazyDeserializedDAG.from_dag(factory(config(owner="team"))).owner == "team"

    def test_it_survives_serialisation(self, factory: Any) -> None:
        dag = factory(config())
        stored = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))
        assert sorted(stored.task_dict) == sorted(dag.task_dict)
        for name, task in stored.task_dict.items():
            assert task.downstream_task_ids == dag.task_dict[name].downstream_task_ids
            assert "tables" in task.template_fields or name in ("plan", "report", *APART)


@pytest.mark.parametrize(
    ("factory", "order"),
    [
        (ingest_dag, ["ingest", "announce"]),
        (hourly_governance_dag, ["assess", "plan", "rewrite_delete_files", "compact_data_files", "report"]),
        (
            nightly_governance_dag,
            [
                *("assess", "plan"),
                *("rewrite_delete_files", "sort_data_files", "compact_data_files", "rewrite_manifests"),
                *("tag_snapshots", "expire_snapshots", "clean_side_tables", "report", "remove_documents"),
            ],
        ),
        (
            weekly_governance_dag,
            ["assess", "plan", "expire_partitions", "remove_orphan_files", "compute_statistics", "report"],
        ),
    ],
)
def test_the_steps_are_chained_in_order(factory: Any, order: list[str]) -> None:
    dag = factory(config(retention=RETENTION))
    assert [task.task_id for task in dag.topological_sort()] == [*order, FINISHED]
    for before, behind in itertools.pairwise([*order, FINISHED]):
        assert behind in dag.task_dict[before].downstream_task_ids


@pytest.mark.parametrize("factory", [hourly_governance_dag, nightly_governance_dag, weekly_governance_dag])
def test_steps_run_after_failures_and_the_last_task_decides_on_the_run(factory: Any) -> None:
    dag = factory(config(retention=RETENTION))
    chained = steps(dag)
    assert [task.task_id for task in dag.leaves] == [FINISHED]
    assert dag.task_dict[FINISHED].trigger_rule == "none_failed"
    order = list(dag.topological_sort())
    assert dag.task_dict[FINISHED].upstream_task_ids == {task.task_id for task in order[:-1]}
    for number, task in enumerate(chained):
        earlier = [before.task_id for before in chained[:number]]
        unmapped: Any = task.unmap({"tables": []})
        assert (unmapped.after, unmapped.planned_by) == (earlier, "plan")
        assert task.partial_kwargs.get("trigger_rule", "all_success") == ("all_done" if earlier else "all_success")
    report: Any = dag.task_dict["report"]
    assert (report.jobs, report.trigger_rule) == ([task.task_id for task in chained], "all_done")


def groups(task: Any) -> list[list[str]]:
    return [each["tables"] for each in task.expand_input.value]


def assessed(dag: Any) -> Any:
    return dag.task_dict["assess"]


def test_the_plan_divides_tables_into_groups_within_its_budget() -> None:
    dag: Any = nightly_governance_dag(config(tables_per_application=2, budgets={"nightly_governance": 30.0}))
    plan = dag.task_dict["plan"]
    assert (plan.tables_per_application, plan.budget_core_seconds) == (2, 1800.0)
    assert plan.jobs == [task.task_id for task in steps(dag)] == list(assessed(dag).steps)
    unlimited: Any = hourly_governance_dag(config())
    assert unlimited.task_dict["plan"].budget_core_seconds is None
    with pytest.raises(SpecError, match="hourly_governance"):
        config(budgets={"hourly": 1.0})
    with pytest.raises(SpecError, match="above 0"):
        config(budgets={"hourly_governance": 0.0})


def test_side_tables_can_be_maintained() -> None:
    assert assessed(hourly_governance_dag(config(tables=("x.y",)))).tables == ["x.y"]


def test_side_tables_of_a_job_get_only_that_job() -> None:
    targets = ({"table": "shop.a", "key": ["id"], "history_table": "shop.h"}, {"table": "shop.b"})
    options = {"ingest": {"quarantine_table": "bad.all"}, "expire_snapshots": {"side_tables": ["x.more"]}}
    task = assessed(nightly_governance_dag(config(targets=targets, tables=("shop.a", "shop.b"), options=options)))
    ours = ["lakecdc.audit", "lakecdc.health"]
    assert task.beside == {
        "compact_data_files": ["bad.all", *ours],
        "rewrite_manifests": ["bad.all", *ours],
        "expire_snapshots": ["bad.all", "x.more", *ours],
    }
    assert task.history == {"shop.a": "shop.h"}
    assert "side_tables" not in task.steps["expire_snapshots"]


def test_configured_quarantines_are_maintained_too() -> None:
    targets = ({"table": "shop.a", "key": ["id"]}, {"table": "shop.b", "key": ["id"]})
    options = {"ingest": {"quarantine_table": "bad.{table}"}}
    dag = nightly_governance_dag(config(targets=targets, options=options))
    assert assessed(dag).beside["expire_snapshots"][:2] == ["bad.a", "bad.b"]
    options = {"ingest": {"quarantine_table": "bad.{table}"}, "replay_quarantine": {"quarantine_table": "bad.all"}}
    with_quarantines = nightly_governance_dag(config(targets=(), tables=("shop.*", "crm.a"), options=options))
    assert assessed(with_quarantines).beside["expire_snapshots"][:2] == ["bad.a", "bad.all"]
    cleaning: Any = dag.task_dict["clean_side_tables"]
    assert cleaning.unmap({"tables": ["shop.a"]}).options["quarantine_table"] == "bad.{table}"


def test_old_rows_are_removed_only_where_configured() -> None:
    without: Any = weekly_governance_dag(config(audit_max_age=0.0))
    assert "expire_partitions" not in without.task_dict and assessed(without).own == {}
    assert assessed(hourly_governance_dag(config(retention=RETENTION))).own == {}
    options = {"expire_partitions": {"max_partitions": 9}}
    dag: Any = weekly_governance_dag(config(retention=RETENTION, options=options, audit_max_age=0.0))
    retention = {"time_column": "at", "max_age": 86400.0, "allow_row_deletes": False}
    assert assessed(dag).own == {"expire_partitions": {"shop.t1": retention}}
    assert dag.task_dict["expire_partitions"].unmap({"tables": []}).options["max_partitions"] == 9


def test_tables_are_checked_before_their_history_expires() -> None:
    assert "check_tables" not in nightly_governance_dag(config()).task_dict
    checks = {"shop.t1": [{"type": "unique", "columns": ["id"]}], "shop.t2": [{"type": "row_count", "min": 1}]}
    dag: Any = nightly_governance_dag(config(options={"check_tables": {"checks": checks}}))
    # all tables have the same options, so that one application checks them
    assert assessed(dag).own == {"check_tables": {"shop.t1": {}, "shop.t2": {}}}
    task = dag.task_dict["check_tables"]
    assert task.unmap({"tables": []}).options["checks"] == checks
    assert task.downstream_task_ids >= {"expire_snapshots"}


def test_rows_of_the_audit_expire_by_age() -> None:
    dag = weekly_governance_dag(config(audit_max_age=1e8))
    assert assessed(dag).beside["expire_partitions"] == [names.AUDIT, names.HEALTH]
    own = assessed(dag).own["expire_partitions"]
    assert {name: (each["time_column"], each["max_age"]) for name, each in own.items()} == {
        names.AUDIT: ("finished_at", 1e8),
        names.HEALTH: ("measured_at", 1e8),
    }
    named = {"tables": (names.AUDIT,), "retention": {names.AUDIT: Retention("started_at", 5.0)}}
    assert assessed(weekly_governance_dag(config(**named))).own["expire_partitions"][names.AUDIT]["max_age"] == 5.0


def test_statistics_cover_no_side_tables_and_can_be_switched_off() -> None:
    dag: Any = weekly_governance_dag(config(options={"compute_statistics": {"columns": ["id"]}}))
    task = dag.task_dict["compute_statistics"]
    assert "compute_statistics" not in dag.task_dict["assess"].beside
    assert task.unmap({"tables": []}).options["columns"] == ["id"]
    left = weekly_governance_dag(config(statistics=False))
    assert [task.task_id for task in steps(left)] == ["expire_partitions", "remove_orphan_files"]


def test_old_documents_are_removed_at_the_end_of_the_night_unless_retained() -> None:
    documents = nightly_governance_dag(config(documents_max_age=172800.0)).task_dict["remove_documents"]
    assert isinstance(documents, RemoveDocumentsOperator)
    assert (documents.max_age, documents.is_dry) == (172800.0, "{{ params.dry_run }}")
    assert documents.trigger_rule == "all_done"
    assert "remove_documents" not in nightly_governance_dag(config(documents_max_age=0.0)).task_dict


def test_orphans_are_only_reported_by_default() -> None:
    def is_dry(**options: Any) -> Any:
        dag: Any = weekly_governance_dag(config(options={"remove_orphan_files": options}))
        return dag.task_dict["remove_orphan_files"].unmap({"tables": []}).options["dry_run"]

    assert is_dry() is True and is_dry(longest_job=9.0) is True
    assert is_dry(dry_run=False) == "{{ params.dry_run }}"


def test_approval_runs_outside_the_chain_when_policy_requires_it() -> None:
    policy = {"shop.*": TablePolicy(approve=("remove_orphan_files",))}
    given = config(retention=RETENTION, policy=policy, approval_timeout=3600.0)
    dag: Any = weekly_governance_dag(given)
    approval_tasks = [f"remove_orphan_files_{part}" for part in ("dry_run", "approval", "approved")]
    without: Any = weekly_governance_dag(config(retention=RETENTION))
    assert set(dag.task_dict) - set(without.task_dict) == {*approval_tasks, "report_approved"}
    assert dag.task_dict["report_approved"].upstream_task_ids == set(approval_tasks)
    for before, behind in itertools.pairwise(["compute_statistics", *approval_tasks, FINISHED]):
        assert behind in dag.task_dict[before].downstream_task_ids
    # only tasks that need the answer wait for it
    assert dag.task_dict["report"].upstream_task_ids == without.task_dict["report"].upstream_task_ids
    dry_run, approval, approved = (dag.task_dict[name] for name in approval_tasks)
    assert dry_run.partial_kwargs["dry_run"] is True
    assert dry_run.unmap({"tables": []}).after == ["expire_partitions", "remove_orphan_files", "compute_statistics"]
    assert approval.response_timeout == timedelta(hours=1) and approval.defaults == ["none of them"]
    assert approved.unmap({"tables": []}).job == "remove_orphan_files"
    assert dag.task_dict["plan"].asks == ["remove_orphan_files"] and without.task_dict["plan"].asks == []
    assert "remove_orphan_files_approval" in dag.doc_md
    DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))
    one: Any = weekly_governance_dag(dataclasses.replace(given, one_application=True))
    assert one.task_dict[approval_tasks[0]].upstream_task_ids == {"plan", "govern"}
    assert one.task_dict[approval_tasks[0]].unmap({"tables": []}).after == ["govern"]
    assert set(nightly_governance_dag(given).task_dict) == set(nightly_governance_dag(config()).task_dict)
    with pytest.raises(SpecError, match="documents_max_age"):
        config(policy=policy, documents_max_age=86400.0)
    with pytest.raises(SpecError, match="approval_timeout"):
        config(approval_timeout=0.0)


def test_the_tables_of_a_replication_slot_stay_together() -> None:
    (task,) = steps(ingest_dag(config(tables_per_application=1)))
    assert groups(task) == [["shop.t0", "shop.t1", "shop.t2"]]


def test_runs_by_data_interval_are_sequential_also_in_a_backfill() -> None:
    dag = ingest_dag(config(source=BY_TIME, source_conn_id=None))
    assert dag.allowed_run_types is None
    assert steps(dag)[0].partial_kwargs["max_active_tis_per_dag"] == 1
    # those of a cursor are sequential
    (task,) = steps(ingest_dag(config()))
    assert task.partial_kwargs["max_active_tis_per_dag"] is None


def test_backfills_are_refused_except_by_data_interval() -> None:
    cursor = config(source={**BY_TIME, "interval": None}, source_conn_id=None)
    for dag in (ingest_dag(config()), ingest_dag(cursor), hourly_governance_dag(config())):
        stored = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))
        assert {"scheduled", "manual"} < set(stored.allowed_run_types or ()) == {*DagRunType} - {"backfill"}


def test_tables_can_be_reloaded_if_the_source_can_load_them() -> None:
    (task,) = steps(ingest_dag(config()))
    assert task.partial_kwargs["reload"] == "{{ (params.reload or []) | join(',') }}"
    files = ingest_dag(config(source={"type": "files", "path": "/x", "format": "csv"}, source_conn_id=None))
    assert "reload" not in files.params and "reload" not in steps(files)[0].partial_kwargs


def test_files_are_ingested_in_groups() -> None:
    files = {"type": "files", "path": "/x", "format": "debezium-json"}
    (task,) = steps(ingest_dag(config(source=files, source_conn_id=None, tables_per_application=1)))
    assert groups(task) == [["shop.t0"], ["shop.t1"], ["shop.t2"]]


def test_only_ingestion_raises_asset_events() -> None:
    dag = ingest_dag(config())
    assert {task.task_id: task.outlets for task in dag.tasks if task.outlets} == {"announce": [tables_alias("lake")]}
    assert dag.task_dict["announce"].trigger_rule == "all_done"
    assert [task.task_id for task in dag.leaves] == [FINISHED]
    assert dag.task_dict[FINISHED].upstream_task_ids == {"ingest", "announce"}
    assert not any(task.outlets for task in nightly_governance_dag(config()).tasks)


def compaction(dag: Any) -> Any:
    return dag.task_dict["compact_data_files"].unmap({"tables": []}).options


def test_the_hourly_compaction_is_light_by_default() -> None:
    def options(**changes: Any) -> Any:
        return compaction(hourly_governance_dag(config(**changes)))

    assert options()["max_runtime"] > 0
    assert options(options={"compact_data_files": {"min_input_files": 2}})["min_input_files"] == 2
    assert compaction(nightly_governance_dag(config()))["max_runtime"] == 0.0


def test_the_hourly_rewrite_of_deletes_is_bounded_by_default() -> None:
    def limit(**options: Any) -> Any:
        dag: Any = hourly_governance_dag(config(options={"rewrite_delete_files": options}))
        return dag.task_dict["rewrite_delete_files"].unmap({"tables": []}).options["max_runtime"]

    assert 0 < limit() < 3600
    assert limit(max_runtime=0.0) == 0.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": {"type": "postgres"}}, "slot"),
        ({"source": {"type": "oracle"}}, "oracle"),
        ({"targets": ({"table": "orders"},)}, "namespace.name"),
        ({"source": {**POSTGRES, "dsn": "host=h password=x"}, "source_conn_id": None}, "literal"),
        (
            {"source": {"type": "jdbc", "cursor_column": "c", "cursor_zone": "Mars/Olympus"}},
            "source.cursor_zone is 'Mars/Olympus'",
        ),
        ({"targets": ({"table": "shop.t", "partition_by": ["buckets(8, id)"]},)}, r"shop\.t.*partition_by.*buckets"),
    ],
)
def test_invalid_options_are_import_errors(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        ingest_dag(config(**changes))


def test_a_source_and_targets_are_needed() -> None:
    with pytest.raises(ValueError, match="needs a source"):
        ingest_dag(LakeConfig(source=POSTGRES))


@pytest.mark.parametrize("factory", [hourly_governance_dag, nightly_governance_dag, weekly_governance_dag])
def test_patterns_of_targets_are_resolved_by_a_task(factory: Any) -> None:
    targets = ({"table": "lake.{schema}_{table}", "source_tables": ["shop.*"], "history_table": "old.{table}_h"},)
    dag = factory(config(targets=targets, retention={"lake.shop_t1": Retention("at", 86400.0)}))
    assert (assessed(dag).tables, assessed(dag).fed) == ([], ["lake.*_*", "old.*_h"])
    assert "enum" not in dag.params.get_param("tables").schema["items"]
    named = factory(config(targets=targets, tables=("lake.shop_orders",)))
    assert named.params.get_param("tables").schema["items"]["enum"] == ["lake.shop_orders"]


def test_patterns_and_policies_are_passed_to_the_assess_task() -> None:
    policy = {"shop.*": TablePolicy(("compact_data_files",), window=Window("22:00", "06:00"))}
    tables = ("shop.*", "!shop.tmp_*", "crm.people")
    task = assessed(hourly_governance_dag(config(tables=tables, policy=policy, schedules=Schedules(timezone="CET"))))
    assert (task.tables, task.zone, task.catalog_conn_id) == (list(tables), "CET", "lake")
    assert {pattern: parse(TablePolicy, each, "policy") for pattern, each in task.policy.items()} == policy
    with pytest.raises(SpecError, match="retention"):
        config(tables=tables, retention={"hr.x": Retention("at", 1.0)})


GOVERNANCE = (hourly_governance_dag, nightly_governance_dag, weekly_governance_dag)


def awaited(dag: Any) -> list[Any]:
    """Return the assets that start a DAG without a schedule, any of which suffices."""
    DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))
    assert isinstance(dag.schedule, AssetAny)
    return list(dag.schedule.objects)


@pytest.mark.parametrize("factory", GOVERNANCE)
def test_writes_of_ingestion_start_a_run(factory: Any) -> None:
    kind = factory.__name__.removesuffix("_dag")
    by_clock_too = factory(config(schedules=Schedules(assets={kind: ("tables",)})))
    assert isinstance(by_clock_too.schedule, AssetOrTimeSchedule)
    assert isinstance(by_clock_too.schedule.timetable, CronDataIntervalTimetable)
    DagSerialization.deserialize_dag(DagSerialization.serialize_dag(by_clock_too))
    no_clock: dict[str, Any] = {kind: None}
    schedules = Schedules(assets={kind: ("tables", "s3://b/f")}, **no_clock)
    fed = [table_asset("lake", f"shop.t{i}") for i in range(3)]
    assert awaited(factory(config(schedules=schedules))) == [*fed, Asset(uri="s3://b/f")]
    assert awaited(factory(config(tables=("shop.*",), schedules=schedules)))[0] == tables_alias("lake")


def test_assets_start_ingestion_unless_it_reads_data_intervals() -> None:
    schedules = Schedules(ingest=None, assets={"ingest": ("s3://landing/orders",)})
    assert awaited(ingest_dag(config(schedules=schedules))) == [Asset(uri="s3://landing/orders")]
    with pytest.raises(SpecError, match="without a data interval"):
        ingest_dag(config(source=BY_TIME, source_conn_id=None, schedules=schedules))
    assert awaited(ingest_dag(config(source={**BY_TIME, "interval": None}, source_conn_id=None, schedules=schedules)))


def test_the_hourly_dag_can_wait_for_debt() -> None:
    schedules = Schedules(debt=DebtLimits(max_equality_delete_files=5))
    dag: Any = hourly_governance_dag(config(schedules=schedules))
    assert dag.schedule == "@continuous"
    order = [task.task_id for task in dag.topological_sort()]
    assert order == ["debt", "assess", "plan", "rewrite_delete_files", "compact_data_files", "report", FINISHED]
    debt = dag.task_dict["debt"]
    assert (debt.tables, debt.max_equality_delete_files) == ([f"shop.t{i}" for i in range(3)], 5)
    assert (debt.deferrable, debt.max_equality_deletes) == (True, None)
    DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))
    assert isinstance(nightly_governance_dag(config(schedules=schedules)).schedule, CronDataIntervalTimetable)


class TestReplay:
    """The DAG that the page's button triggers."""

    def test_it_is_triggered_by_hand_with_source_and_targets_of_the_ingest_dag(self) -> None:
        dag = replay_quarantine_dag(config(options={"ingest": {"quarantine_table": "ops.kept"}}))
        assert dag.dag_id == "lakecdc_replay_quarantine" and dag.schedule is None
        (step,) = steps(dag)
        given = step.partial_kwargs
        assert (given["source"], given["targets"], given["source_conn_id"]) == (POSTGRES, list(TARGETS), "shop_db")
        assert given["quarantine_table"] == "ops.kept"
        assert DagSerialization.from_dict(DagSerialization.to_dict(dag)).dag_id == dag.dag_id

    def test_rules_and_tables_reach_the_job(self) -> None:
        dag = replay_quarantine_dag(config())
        (step,) = steps(dag)
        params = _with(dag.params, {"tables": ["shop.t1"], "rules": ["type", "not-json"]})
        operator = ReplayQuarantineOperator(
            task_id="t", source=POSTGRES, targets=TARGETS, rules=step.partial_kwargs["rules"]
        )
        operator.render_template_fields({"params": params.dump()})
        assert typed_options("replay_quarantine", operator.options)["rules"] == ["type", "not-json"]
        with pytest.raises(ParamValidationError):
            _with(dag.params, {"rules": "type"}).validate()

    def test_without_a_source_there_is_no_replay_dag(self) -> None:
        with pytest.raises(ValueError, match="needs a source"):
            replay_quarantine_dag(LakeConfig(tables=("shop.orders",)))
