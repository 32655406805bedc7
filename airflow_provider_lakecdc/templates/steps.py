"""Parts that the DAG templates share: the DAG, its schedule and params, and steps mapped over groups of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import (
    DAG,
    Asset,
    AssetAny,
    AssetOrTimeSchedule,
    BaseOperator,
    CronDataIntervalTimetable,
    Param,
    TriggerRule,
    XComArg,
)
from airflow.sdk.definitions.asset import BaseAsset
from airflow.sdk.definitions.deadline import DeadlineAlert
from airflow.sdk.definitions.mappedoperator import MappedOperator

from airflow_provider_lakecdc.observe.assets import table_asset, tables_alias
from airflow_provider_lakecdc.operators import job_operator
from airflow_provider_lakecdc.operators.base import MAP_INDEX_TEMPLATE
from airflow_provider_lakecdc.operators.plan import PlanOperator, groups_of_tables
from airflow_provider_lakecdc.submit.retry_policy import retry_policy
from airflow_provider_lakecdc.templates.config import LakeConfig
from airflow_provider_lakecdc.templates.schedules import REPLAY, TABLES
from lakecdc.contract.fields import parse_moment
from lakecdc.metadata.debt import DebtLimits

#: the last task, which succeeds if no other failed and decides the state of the run
FINISHED = "finished"
RETRY_DELAY = timedelta(minutes=1)
#: all run types except backfills
_NO_BACKFILL = ("scheduled", "manual", "operator_triggered", "asset_triggered", "asset_materialization")
_FORM = """
Runs triggered by hand can be restricted to some tables, and can be dry runs.
"""


# templates of the params in task arguments
ONLY_TABLES = "{{ (params.tables or []) | join(',') }}"
IS_DRY_RUN = "{{ params.dry_run }}"
RULES = "{{ (params.rules or []) | join(',') }}"
RELOADED = "{{ (params.reload or []) | join(',') }}"


def new_dag(
    config: LakeConfig,
    kind: str,
    doc: str,
    params: dict[str, Param],
    *,
    may_backfill: bool = False,
    deadline: DeadlineAlert | None = None,
) -> DAG:
    """Create an empty DAG.

    It has one active run: changes are applied in order, and concurrent maintenance would conflict.

    :param kind: one of ``schedules.DAGS``, with its schedule, or ``schedules.REPLAY``; part of the DAG id.
    :param doc: Markdown for Airflow's web page.
    :param may_backfill: whether runs depend on their data interval; otherwise Airflow rejects backfills.
    :param deadline: alert about runs that take too long.
    """
    return DAG(
        dag_id=f"{config.dag_id_prefix}_{kind}",
        schedule=None if kind == REPLAY else schedule_of(config, kind),
        start_date=parse_moment(config.start_date, "start_date"),
        catchup=False,
        max_active_runs=1,
        default_args={
            "owner": config.owner,
            "retries": config.retries,
            "retry_delay": RETRY_DELAY,
            "retry_policy": retry_policy(),
        },
        tags={"lakecdc", kind, *config.tags},
        params=params,
        deadline=deadline,
        # Airflow accepts the values, but the enumeration is not public
        allowed_run_types=None if may_backfill else _NO_BACKFILL,  # type: ignore[arg-type]
        doc_md=doc + _FORM,
    )


def schedule_of(config: LakeConfig, kind: str) -> Any:
    """Return the schedule of a DAG: a timetable, asset events, both, or continuous if it begins with a sensor.

    The timetable has data intervals, which plain cron strings do not have in Airflow 3.
    """
    if debt_trigger(config, kind):
        return "@continuous"
    schedules = config.schedules
    cron = getattr(schedules, kind)
    clock = CronDataIntervalTimetable(cron, schedules.timezone) if cron else None
    assets = [asset for name in schedules.assets.get(kind, ()) for asset in _assets(config, name)]
    if not assets:
        return clock
    any_asset = AssetAny(*assets)
    return AssetOrTimeSchedule(timetable=clock, assets=any_asset) if clock else any_asset


def debt_trigger(config: LakeConfig, kind: str) -> DebtLimits | None:
    """Return the delete debt that starts the work of a DAG's runs, if configured."""
    return config.schedules.debt if kind == "hourly_governance" else None


def _assets(config: LakeConfig, name: str) -> list[BaseAsset]:
    if name != TABLES:
        return [Asset(uri=name)]
    if config.selection.has_patterns:
        # ingest DAGs raise the events of all tables of the catalog through this alias
        return [tables_alias(config.catalog)]
    return [table_asset(config.catalog, table) for table in config.maintained_tables]


def finish(tasks: Sequence[BaseOperator | MappedOperator]) -> None:
    """Add the last task, which fails the run if any of all tasks failed, as later steps run after failures."""
    # groups without selected tables are skipped
    list(tasks) >> EmptyOperator(task_id=FINISHED, trigger_rule=TriggerRule.NONE_FAILED)


def planned_step(
    job: str,
    config: LakeConfig,
    plan: PlanOperator,
    options: Mapping[str, Any],
    task_id: str | None = None,
    **arguments: Any,
) -> MappedOperator:
    """Create a step whose groups of tables a task plans when the DAG runs, under the id of the step."""
    name = task_id or job

    # not a partial: Airflow shows the source of mapping functions
    def of_job(group: dict[str, Any]) -> Any:
        return group.get(name) or {"tables": []}

    groups = plan.output.map(of_job)
    return mapped_step(job, config, groups, options, task_id=name, planned_by=plan.task_id, **arguments)


def feeding_step(
    job: str, config: LakeConfig, options: Mapping[str, Any], size: int, **arguments: Any
) -> MappedOperator:
    """Create a step of a job that feeds the targets from the source, in applications of ``size`` tables (0: all)."""
    return mapped_step(
        job,
        config,
        [{"tables": group} for group in groups_of_tables(config.target_tables, size)],
        options,
        source=config.source,
        targets=config.complete_targets,
        source_conn_id=config.source_conn_id,
        only=ONLY_TABLES,
        **arguments,
    )


def mapped_step(
    job: str,
    config: LakeConfig,
    groups: list[dict[str, Any]] | XComArg,
    options: Mapping[str, Any],
    **arguments: Any,
) -> MappedOperator:
    """Create a step: a task per group of tables, named after its job unless ``arguments`` have a ``task_id``."""
    pool = {"pool": config.pool} if config.pool else {}
    # an option dry_run in the configuration overrides the run's param
    dry_run = options.get("dry_run") or IS_DRY_RUN
    return (
        job_operator(job)
        .partial(
            catalog_conn_id=config.catalog,
            map_index_template=MAP_INDEX_TEMPLATE,
            **config.spark.arguments(),
            **pool,
            **{**options, "dry_run": dry_run},
            strict_run_conf=True,
            **{"task_id": job, **arguments},
        )
        .expand_kwargs(groups)
    )


def run_params(tables: Sequence[str] | None) -> dict[str, Param]:
    """Return the params of all DAGs; Airflow rejects invalid values before it creates a run.

    :param tables: tables that a run can be restricted to; None if only the run knows them.
    """
    return {
        "tables": tables_param(tables, "Tables", "Work only on these tables; leave it empty for all."),
        "dry_run": Param(
            False, type="boolean", title="Dry run", description="Plan and measure, write to the log, change nothing."
        ),
    }


def tables_param(tables: Sequence[str] | None, title: str, text: str) -> Param:
    """Return a param with some of the tables, of which the form shows the known ones."""
    known: dict[str, Any] = {} if tables is None else {"enum": list(tables)}
    shown: dict[str, Any] = {} if tables is None else {"examples": list(tables)}
    return Param(
        None, type=["null", "array"], items={"type": "string", **known}, title=title, description=text, **shown
    )
