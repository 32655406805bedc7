"""The DAGs that the templates make."""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk import CronDataIntervalTimetable, ExceptionRetryPolicy
from airflow.sdk.api.datamodels._generated import DagRunType
from airflow.sdk.definitions.mappedoperator import MappedOperator
from airflow.sdk.exceptions import ParamValidationError
from airflow.serialization.serialized_objects import DagSerialization, LazyDeserializedDAG

from airflow_provider_lakecdc.assets import tables_alias
from airflow_provider_lakecdc.operators.discover_tables import DiscoverTablesOperator
from airflow_provider_lakecdc.operators.remove_documents import RemoveDocumentsOperator
from airflow_provider_lakecdc.templates import (
    LakeConfig,
    SparkConfig,
    hourly_governance_dag,
    ingest_dag,
    nightly_governance_dag,
    weekly_governance_dag,
)
from airflow_provider_lakecdc.templates.config import Retention, Schedules
from airflow_provider_lakecdc.templates.steps import FINISHED
from lakecdc.contract.errors import SpecError
from lakecdc.contract.options import OPTIONS
from lakecdc.metadata.policy import TablePolicy

POSTGRES = {"type": "postgres", "slot": "s"}
TARGETS = tuple({"table": f"shop.t{i}", "key": ["id"]} for i in range(3))


def config(**changes: Any) -> LakeConfig:
    defaults = {"catalog_conn_id": "lake", "source": POSTGRES, "source_conn_id": "shop_db", "targets": TARGETS}
    return LakeConfig(**{**defaults, **changes})


def steps(dag: Any) -> list[MappedOperator]:
    found = [task for task in dag.tasks if task.task_id not in (FINISHED, "announce", "remove_documents")]
    assert all(isinstance(task, MappedOperator) for task in found)
    return found


def _with(params: Any, conf: dict[str, Any]) -> Any:
    found = copy.deepcopy(params)
    found.update(conf)
    return found


BY_TIME = {"type": "jdbc", "url": "jdbc:postgresql://h/d", "cursor_column": "c"}
RETENTION = {"shop.t1": Retention("at", 86400.0)}
RELOAD: dict[Any, dict[str, None]] = {ingest_dag: {"reload": None}}
FACTORIES = (ingest_dag, hourly_governance_dag, nightly_governance_dag, weekly_governance_dag)
#: steps that change nothing unless they are told to
DRY = ("remove_orphan_files",)


@pytest.mark.parametrize("factory", FACTORIES)
class TestEveryDag:
    """What holds for all of them."""

    def test_runs_have_intervals_and_come_one_at_a_time(self, factory: Any) -> None:
        dag = factory(config())
        assert isinstance(dag.timetable, CronDataIntervalTimetable)
        assert dag.catchup is False
        assert dag.max_active_runs == 1
        assert dag.doc_md and "shop.t0" in dag.doc_md
        assert dag.start_date is not None

    def test_without_a_schedule_it_runs_by_hand(self, factory: Any) -> None:
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

    def test_a_run_can_be_told_what_to_do_and_nothing_else(self, factory: Any) -> None:
        dag = factory(config())
        assert dag.params.validate() == {"tables": None, "dry_run": False, **RELOAD.get(factory, {})}
        for task in steps(dag):
            assert task.partial_kwargs["strict_run_conf"] is True
            assert task.partial_kwargs["dry_run"] == (True if task.task_id in DRY else "{{ params.dry_run }}")
        for wrong in ({"tables": ["shop.t9"]}, {"tables": "shop.t0"}, {"dry_run": "perhaps"}):
            with pytest.raises(ParamValidationError):
                _with(dag.params, wrong).validate()
        assert _with(dag.params, {"tables": ["shop.t1"], "dry_run": True}).validate()

    def test_what_is_configured_to_be_dry_stays_dry(self, factory: Any) -> None:
        options = {job: {"dry_run": True} for job in OPTIONS}
        assert all(task.partial_kwargs["dry_run"] is True for task in steps(factory(config(options=options))))

    def test_its_owner_is_the_configured_one(self, factory: Any) -> None:
        # what the DAG processor writes down of a DAG, for which mapped tasks have no owner
        assert LazyDeserializedDAG.from_dag(factory(config(owner="team"))).owner == "team"

    def test_it_survives_serialisation(self, factory: Any) -> None:
        dag = factory(config())
        stored = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))
        assert sorted(stored.task_dict) == sorted(dag.task_dict)
        for name, task in stored.task_dict.items():
            assert task.downstream_task_ids == dag.task_dict[name].downstream_task_ids
            assert "tables" in task.template_fields or name in (FINISHED, "remove_documents")


@pytest.mark.parametrize(
    ("factory", "order"),
    [
        (ingest_dag, ["ingest", "announce"]),
        (hourly_governance_dag, ["rewrite_delete_files", "compact_data_files"]),
        (
            nightly_governance_dag,
            [
                *("rewrite_delete_files", "sort_data_files", "compact_data_files", "rewrite_manifests"),
                *("tag_snapshots", "expire_snapshots", "clean_side_tables", "remove_documents"),
            ],
        ),
        (weekly_governance_dag, ["expire_partitions", "remove_orphan_files", "compute_statistics"]),
    ],
)
def test_the_steps_are_chained_in_order(factory: Any, order: list[str]) -> None:
    dag = factory(config(retention=RETENTION))
    (task,) = dag.roots
    found = [task.task_id]
    while following := [task for task in task.downstream_list if task.task_id != FINISHED]:
        (task,) = following
        found.append(task.task_id)
    assert found == order


@pytest.mark.parametrize("factory", [hourly_governance_dag, nightly_governance_dag, weekly_governance_dag])
def test_steps_go_on_after_failures_and_the_last_task_judges_the_run(factory: Any) -> None:
    dag = factory(config(retention=RETENTION))
    chained = steps(dag)
    assert [task.task_id for task in dag.leaves] == [FINISHED]
    assert dag.task_dict[FINISHED].trigger_rule == "none_failed"
    order = list(dag.topological_sort())
    assert dag.task_dict[FINISHED].upstream_task_ids == {task.task_id for task in order[:-1]}
    for number, task in enumerate([task for task in order if task in chained]):
        earlier = [before.task_id for before in order[:number]]
        alike = [name for name in earlier if groups(dag.task_dict[name]) == groups(task)]
        assert task.unmap({"tables": []}).after == alike
        assert set(earlier) - set(alike) <= {"expire_partitions"}
        assert task.partial_kwargs.get("trigger_rule", "all_success") == ("all_done" if earlier else "all_success")


def groups(task: Any) -> list[list[str]]:
    return [each["tables"] for each in task.expand_input.value]


def beside(task: Any) -> list[list[str]]:
    return [each.get("side_tables", []) for each in task.expand_input.value]


def test_maintenance_is_mapped_over_groups() -> None:
    for task in steps(nightly_governance_dag(config(tables_per_application=2))):
        assert groups(task) == [["shop.t0", "shop.t1"], ["shop.t2"]]


def test_tables_beside_those_that_are_fed_can_be_maintained() -> None:
    for task in steps(hourly_governance_dag(config(tables=("x.y",)))):
        assert groups(task) == [["x.y"]]


def test_side_tables_go_with_their_targets_and_every_one_in_one_group_only() -> None:
    targets = ({"table": "shop.a", "key": ["id"], "history_table": "shop.h"}, {"table": "shop.b"}, {"table": "x.c"})
    options = {"ingest": {"quarantine_table": "bad.all"}, "expire_snapshots": {"side_tables": ["x.more"]}}
    tables = tuple(target["table"] for target in targets)
    dag = nightly_governance_dag(config(targets=targets, tables=tables, tables_per_application=1, options=options))
    assert beside(dag.task_dict["sort_data_files"]) == [[], [], []]
    for job in ("compact_data_files", "rewrite_manifests", "expire_snapshots"):
        shared = ["shop.lakecdc_quarantine", "shop.lakecdc_parked"]
        own = ["shop.a_lakecdc_deletes", "shop.a_lakecdc_files", *shared, "shop.h", "bad.all"]
        assert beside(dag.task_dict[job]) == [
            [*own, "x.more"] if job == "expire_snapshots" else own,
            ["shop.b_lakecdc_deletes", "shop.b_lakecdc_files"],
            ["x.c_lakecdc_deletes", "x.c_lakecdc_files", "x.lakecdc_quarantine", "x.lakecdc_parked"],
        ]
    assert beside(hourly_governance_dag(config(tables=("x.c",))).task_dict["compact_data_files"])[0][0] == (
        "x.c_lakecdc_deletes"
    )


def test_quarantines_of_their_own_are_maintained_too() -> None:
    targets = ({"table": "shop.a", "key": ["id"]}, {"table": "shop.b", "key": ["id"]})
    options = {"ingest": {"quarantine_table": "bad.{table}"}}
    dag = nightly_governance_dag(config(targets=targets, options=options))
    assert {"bad.a", "bad.b"} <= set(beside(dag.task_dict["expire_snapshots"])[0])
    options = {"ingest": {"quarantine_table": "bad.{table}"}, "replay_quarantine": {"quarantine_table": "bad.all"}}
    found: Any = nightly_governance_dag(config(targets=(), tables=("shop.*", "crm.a"), options=options))
    assert found.task_dict["discover"].beside["expire_snapshots"] == ["bad.a", "bad.all"]
    cleaning: Any = dag.task_dict["clean_side_tables"]
    assert cleaning.unmap({"tables": ["shop.a"]}).options["quarantine_table"] == "bad.{table}"


def test_old_rows_are_removed_where_the_configuration_says_so_and_nowhere_else() -> None:
    assert "expire_partitions" not in weekly_governance_dag(config()).task_dict
    alike = Retention("at", 86400.0)
    retention = {"shop.t0": alike, "shop.t1": Retention("day", 3600.0, allow_row_deletes=True), "shop.t2": alike}
    options = {"expire_partitions": {"max_partitions": 9, "allow_row_deletes": True}}
    dag = weekly_governance_dag(config(retention=retention, options=options))
    tasks: dict[str, Any] = dict(dag.task_dict)
    expiry, orphans = tasks["expire_partitions"], tasks["remove_orphan_files"]
    assert groups(expiry) == [["shop.t0", "shop.t2"], ["shop.t1"]]
    found = [expiry.unmap(each).options for each in expiry.expand_input.value]
    assert [(o["time_column"], o["max_age"], o["allow_row_deletes"], o["max_partitions"]) for o in found] == [
        ("at", 86400.0, False, 9),
        ("day", 3600.0, True, 9),
    ]
    assert groups(orphans) == [["shop.t0", "shop.t1", "shop.t2"]]
    assert "shop.lakecdc_quarantine" in beside(orphans)[0]


def test_statistics_are_computed_of_the_tables_alone_unless_the_configuration_leaves_them_out() -> None:
    dag: Any = weekly_governance_dag(config(options={"compute_statistics": {"columns": ["id"]}}))
    task = dag.task_dict["compute_statistics"]
    assert groups(task) == [["shop.t0", "shop.t1", "shop.t2"]] and beside(task) == [[]]
    assert task.unmap({"tables": []}).options["columns"] == ["id"]
    left = weekly_governance_dag(config(statistics=False))
    assert [task.task_id for task in steps(left)] == ["remove_orphan_files"]


def test_old_documents_are_removed_at_the_end_of_the_night_unless_they_are_to_be_kept() -> None:
    documents = nightly_governance_dag(config(documents_max_age=172800.0)).task_dict["remove_documents"]
    assert isinstance(documents, RemoveDocumentsOperator)
    assert (documents.max_age, documents.is_dry) == (172800.0, "{{ params.dry_run }}")
    assert documents.trigger_rule == "all_done"
    assert "remove_documents" not in nightly_governance_dag(config(documents_max_age=0.0)).task_dict


def test_orphans_are_only_told_unless_the_configuration_says_otherwise() -> None:
    def is_dry(**options: Any) -> Any:
        dag: Any = weekly_governance_dag(config(options={"remove_orphan_files": options}))
        return dag.task_dict["remove_orphan_files"].unmap({"tables": []}).options["dry_run"]

    assert is_dry() is True and is_dry(longest_job=9.0) is True
    assert is_dry(dry_run=False) == "{{ params.dry_run }}"


def test_a_side_table_that_is_maintained_itself_is_not_one_beside() -> None:
    targets = ({"table": "shop.a", "key": ["id"], "history_table": "shop.h"},)
    (task,) = [t for t in nightly_governance_dag(config(targets=targets)).tasks if t.task_id == "expire_snapshots"]
    assert groups(task) == [["shop.a", "shop.h"]]
    assert "shop.h" not in beside(task)[0]


def test_the_tables_of_a_replication_slot_stay_together() -> None:
    (task,) = steps(ingest_dag(config(tables_per_application=1)))
    assert groups(task) == [["shop.t0", "shop.t1", "shop.t2"]]


def test_runs_by_time_work_one_by_one_also_in_a_backfill() -> None:
    dag = ingest_dag(config(source=BY_TIME, source_conn_id=None))
    assert dag.allowed_run_types is None
    assert steps(dag)[0].partial_kwargs["max_active_tis_per_dag"] == 1
    # those of a cursor come one at a time
    (task,) = steps(ingest_dag(config()))
    assert task.partial_kwargs["max_active_tis_per_dag"] is None


def test_a_backfill_that_would_stand_for_nothing_cannot_be_made() -> None:
    cursor = config(source={**BY_TIME, "interval": None}, source_conn_id=None)
    for dag in (ingest_dag(config()), ingest_dag(cursor), hourly_governance_dag(config())):
        stored = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))
        assert {"scheduled", "manual"} < set(stored.allowed_run_types or ()) == {*DagRunType} - {"backfill"}


def test_tables_can_be_reloaded_where_the_source_loads_them() -> None:
    (task,) = steps(ingest_dag(config()))
    assert task.partial_kwargs["reload"] == "{{ (params.reload or []) | join(',') }}"
    files = ingest_dag(config(source={"type": "files", "path": "/x", "format": "csv"}, source_conn_id=None))
    assert "reload" not in files.params and "reload" not in steps(files)[0].partial_kwargs


def test_files_are_ingested_in_groups() -> None:
    files = {"type": "files", "path": "/x", "format": "debezium-json"}
    (task,) = steps(ingest_dag(config(source=files, source_conn_id=None, tables_per_application=1)))
    assert groups(task) == [["shop.t0"], ["shop.t1"], ["shop.t2"]]


def test_only_ingestion_raises_events_of_the_tables() -> None:
    dag = ingest_dag(config())
    assert {task.task_id: task.outlets for task in dag.tasks if task.outlets} == {"announce": [tables_alias("lake")]}
    assert dag.task_dict["announce"].trigger_rule == "all_done"
    assert [task.task_id for task in dag.leaves] == [FINISHED]
    assert dag.task_dict[FINISHED].upstream_task_ids == {"ingest", "announce"}
    assert not any(task.outlets for task in nightly_governance_dag(config()).tasks)


def compaction(dag: Any) -> Any:
    return dag.task_dict["compact_data_files"].unmap({"tables": []}).options


def test_the_hourly_compaction_is_light_unless_told_otherwise() -> None:
    def options(**changes: Any) -> Any:
        return compaction(hourly_governance_dag(config(**changes)))

    assert options()["max_runtime"] > 0
    assert options(options={"compact_data_files": {"min_input_files": 2}})["min_input_files"] == 2
    assert compaction(nightly_governance_dag(config()))["max_runtime"] == 0.0


def test_the_hourly_rewrite_of_deletes_is_bounded_unless_told_otherwise() -> None:
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
def test_what_the_job_would_refuse_is_an_import_error(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        ingest_dag(config(**changes))


def test_a_source_and_targets_are_needed() -> None:
    with pytest.raises(ValueError, match="needs a source"):
        ingest_dag(LakeConfig(source=POSTGRES))


@pytest.mark.parametrize("factory", [hourly_governance_dag, nightly_governance_dag, weekly_governance_dag])
def test_what_only_the_catalog_can_tell_is_found_by_a_task(factory: Any) -> None:
    targets = ({"table": "lake.{schema}_{table}", "source_tables": ["shop.*"], "history_table": "old.{table}_h"},)
    dag = factory(config(targets=targets, retention={"lake.shop_t1": Retention("at", 86400.0)}))
    discover = dag.task_dict["discover"]
    assert isinstance(discover, DiscoverTablesOperator) and list(dag.roots) == [discover]
    assert (discover.tables, discover.fed) == ([], ["lake.*_*", "old.*_h"])
    mapped = [task for task in dag.tasks if isinstance(task, MappedOperator) and task.task_id != "expire_partitions"]
    assert {task.task_id for task in mapped} == set(discover.jobs)
    assert all(task.partial_kwargs["is_found"] for task in mapped)
    assert "enum" not in dag.params.get_param("tables").schema["items"]
    named = factory(config(targets=targets, tables=("lake.shop_orders",)))
    assert "discover" not in named.task_dict


def test_patterns_and_policies_go_to_the_task_that_finds_tables() -> None:
    policy = {"shop.*": TablePolicy(("compact_data_files",))}
    tables = ("shop.*", "!shop.tmp_*", "crm.people")
    options = {"compact_data_files": {"side_tables": ["x.more"]}}
    dag = hourly_governance_dag(config(tables=tables, policy=policy, options=options, tables_per_application=5))
    discover: Any = dag.task_dict["discover"]
    assert discover.tables == list(tables) and discover.policy == {"shop.*": {"allow": ("compact_data_files",)}}
    assert discover.beside == {"compact_data_files": ["x.more"]}
    assert (discover.tables_per_application, discover.catalog_conn_id) == (5, "lake")
    with pytest.raises(SpecError, match="no pattern"):
        config(tables=("crm.people",), policy=policy)
    with pytest.raises(SpecError, match="retention"):
        config(tables=tables, retention={"hr.x": Retention("at", 1.0)})
