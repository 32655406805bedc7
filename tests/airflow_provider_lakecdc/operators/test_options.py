"""Every option of a job is an argument of its operator, with the same default."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from airflow_provider_lakecdc.operators.check_tables import CheckTablesOperator
from airflow_provider_lakecdc.operators.clean_side_tables import CleanSideTablesOperator
from airflow_provider_lakecdc.operators.compact_data_files import CompactDataFilesOperator
from airflow_provider_lakecdc.operators.compute_statistics import ComputeStatisticsOperator
from airflow_provider_lakecdc.operators.erase_rows import EraseRowsOperator
from airflow_provider_lakecdc.operators.expire_partitions import ExpirePartitionsOperator
from airflow_provider_lakecdc.operators.expire_snapshots import ExpireSnapshotsOperator
from airflow_provider_lakecdc.operators.export_changes import ExportChangesOperator
from airflow_provider_lakecdc.operators.govern import GovernOperator
from airflow_provider_lakecdc.operators.ingest import IngestOperator
from airflow_provider_lakecdc.operators.rebucket import RebucketOperator
from airflow_provider_lakecdc.operators.rebuild_keys import RebuildKeysOperator
from airflow_provider_lakecdc.operators.reconcile import ReconcileOperator
from airflow_provider_lakecdc.operators.remove_orphan_files import RemoveOrphanFilesOperator
from airflow_provider_lakecdc.operators.replay_quarantine import ReplayQuarantineOperator
from airflow_provider_lakecdc.operators.restore_moment import RestoreMomentOperator
from airflow_provider_lakecdc.operators.rewrite_delete_files import RewriteDeleteFilesOperator
from airflow_provider_lakecdc.operators.rewrite_manifests import RewriteManifestsOperator
from airflow_provider_lakecdc.operators.rollback_tables import RollbackTablesOperator
from airflow_provider_lakecdc.operators.scd2 import Scd2Operator
from airflow_provider_lakecdc.operators.set_readers import SetReadersOperator
from airflow_provider_lakecdc.operators.sort_data_files import SortDataFilesOperator
from airflow_provider_lakecdc.operators.tag_snapshots import TagSnapshotsOperator
from airflow_provider_lakecdc.submit.submission import typed_options
from lakecdc.contract.fields import parse
from lakecdc.contract.options import OPTIONS
from lakecdc.contract.spec import SOURCE_JOBS

OPERATORS: dict[str, type[LakecdcJobOperator]] = {
    operator.job_name: operator
    for operator in (
        IngestOperator,
        ReplayQuarantineOperator,
        RewriteDeleteFilesOperator,
        SortDataFilesOperator,
        CompactDataFilesOperator,
        RebucketOperator,
        RewriteManifestsOperator,
        ComputeStatisticsOperator,
        TagSnapshotsOperator,
        ExpireSnapshotsOperator,
        ExpirePartitionsOperator,
        RemoveOrphanFilesOperator,
        CleanSideTablesOperator,
        RollbackTablesOperator,
        SetReadersOperator,
        ReconcileOperator,
        ExportChangesOperator,
        CheckTablesOperator,
        RestoreMomentOperator,
        Scd2Operator,
        RebuildKeysOperator,
        EraseRowsOperator,
        GovernOperator,
    )
}
#: arguments that are not options: source and tables of a job
PARTS: dict[str, Any] = {"source": {}, "targets": []}


def build(job: str, **arguments: Any) -> LakecdcJobOperator:
    parts = PARTS if job in SOURCE_JOBS else {}
    return OPERATORS[job](**{"task_id": "t", "tables": ["a.b"], **parts, **arguments})


def test_every_job_has_an_operator() -> None:
    assert set(OPERATORS) == set(OPTIONS)


@pytest.mark.parametrize("job", OPTIONS)
def test_each_option_is_a_declared_argument(job: str) -> None:
    declared = inspect.signature(inspect.unwrap(OPERATORS[job].__init__)).parameters
    options = {field.name for field in dataclasses.fields(OPTIONS[job])}
    assert options <= set(declared)
    # and no other option is declared
    assert set(declared) - options <= {"self", "kwargs", "source", "targets", "source_conn_id"}


@pytest.mark.parametrize("job", OPTIONS)
def test_the_defaults_are_those_of_the_job(job: str) -> None:
    assert parse(OPTIONS[job], typed_options(job, build(job).options), "options") == OPTIONS[job]()


@pytest.mark.parametrize(
    ("job", "option"), [(job, f.name) for job in OPTIONS for f in dataclasses.fields(OPTIONS[job])]
)
def test_an_argument_becomes_its_option(job: str, option: str) -> None:
    assert build(job, **{option: "{{ params.x }}"}).options[option] == "{{ params.x }}"


@pytest.mark.parametrize("job", OPTIONS)
def test_template_fields_are_attributes(job: str) -> None:
    operator = build(job)
    assert [name for name in operator.template_fields if not hasattr(operator, name)] == []


@pytest.mark.parametrize("job", OPTIONS)
def test_it_can_be_mapped_over_groups(job: str) -> None:
    parts = PARTS if job in SOURCE_JOBS else {}
    mapped = OPERATORS[job].partial(task_id="t", dry_run=True, **parts).expand(tables=[["a.b"], ["a.c"]])
    operator = mapped.unmap({"tables": ["a.c"]})
    assert isinstance(operator, LakecdcJobOperator)
    assert operator.options["dry_run"] is True


def test_default_args_reach_the_options() -> None:
    from airflow.sdk import DAG

    with DAG("d", schedule=None, default_args={"verify": "sample", "catalog_conn_id": "x", "executor_memory": "7g"}):
        operator = build("sort_data_files")
    assert operator.options["verify"] == "sample"
    assert operator.catalog_conn_id == "x"
    assert operator._executor_memory == "7g"
