"""What the DAG templates share: the DAG itself, what starts it, and a step mapped over groups of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from airflow.sdk.definitions.mappedoperator import MappedOperator

from airflow_provider_lakecdc.observe.assets import table_asset, tables_alias
from airflow_provider_lakecdc.operators.base import MAP_INDEX_TEMPLATE, LakecdcJobOperator
from airflow_provider_lakecdc.operators.plan import PlanOperator
from airflow_provider_lakecdc.submit.retry_policy import retry_policy
from airflow_provider_lakecdc.templates import params
from airflow_provider_lakecdc.templates.config import LakeConfig
from airflow_provider_lakecdc.templates.schedules import REPLAY, TABLES
from lakecdc.metadata.debt import DebtLimits

#: the task that is done if every other has succeeded; it decides the state of the run
FINISHED = "finished"
RETRY_DELAY = timedelta(minutes=1)
#: ways in which a run comes about that does not stand for its data interval: all but a backfill
_NO_BACKFILL = ("scheduled", "manual", "operator_triggered", "asset_triggered", "asset_materialization")
_FORM = """
A run that is triggered by hand can be narrowed to some of the tables, and can be a dry run.
"""


def new_dag(
    config: LakeConfig, kind: str, doc: str, run_params: dict[str, Param], *, may_backfill: bool = False
) -> DAG:
    """An empty DAG of one of the kinds.

    One run at a time: changes are applied in order, and two maintenance runs would only make each other conflict.

    :param kind: one of ``schedules.DAGS``, which picks its schedule, or ``schedules.REPLAY``; names the DAG.
    :param doc: Markdown for Airflow's web page.
    :param run_params: what a run can be told.
    :param may_backfill: a run works on its data interval; else Airflow refuses to make a backfill.
    """
    return DAG(
        dag_id=f"{config.dag_id_prefix}_{kind}",
        schedule=None if kind == REPLAY else schedule_of(config, kind),
        start_date=config.first_day,
        catchup=False,
        max_active_runs=1,
        default_args={"owner": config.owner, "retries": config.retries, "retry_delay": RETRY_DELAY},
        tags={"lakecdc", kind, *config.tags},
        params=run_params,
        # Airflow takes their values, but the type of the enumeration is none of its public names
        allowed_run_types=None if may_backfill else _NO_BACKFILL,  # type: ignore[arg-type]
        doc_md=doc + _FORM,
    )


def schedule_of(config: LakeConfig, kind: str) -> Any:
    """What starts a DAG: the clock, events of assets, both, or its own end where it waits for something itself.

    Its timetable has a data interval, which those of a bare cron string do not have in Airflow 3.

    :param kind: one of ``schedules.DAGS``.
    """
    if awaited_debt(config, kind):
        return "@continuous"
    schedules = config.schedules
    cron = getattr(schedules, kind)
    clock = CronDataIntervalTimetable(cron, schedules.timezone) if cron else None
    assets = [asset for name in schedules.assets.get(kind, ()) for asset in _assets(config, name)]
    if not assets:
        return clock
    any_of_them = AssetAny(*assets)
    return AssetOrTimeSchedule(timetable=clock, assets=any_of_them) if clock else any_of_them


def awaited_debt(config: LakeConfig, kind: str) -> DebtLimits | None:
    """The delete debt for which the runs of a DAG begin by waiting, if they do."""
    return config.schedules.debt if kind == "hourly_governance" else None


def _assets(config: LakeConfig, name: str) -> list[BaseAsset]:
    if name != TABLES:
        return [Asset(uri=name)]
    if config.finds_tables:
        # through it the ingest DAGs raise the events of all tables of the catalog
        return [tables_alias(config.catalog)]
    return [table_asset(config.catalog, table) for table in config.maintained_tables]


def finish(tasks: Sequence[BaseOperator | MappedOperator]) -> None:
    """End a DAG whose last step goes on after failures, and so cannot tell whether the run has succeeded.

    :param tasks: all of the DAG's; if one has failed, so has the run.
    """
    # groups that nobody has asked for are skipped
    list(tasks) >> EmptyOperator(task_id=FINISHED, trigger_rule=TriggerRule.NONE_FAILED)


@dataclass(frozen=True)
class Groups:
    """What a step is mapped over.

    :param arguments: of each task, by group of tables; or the XCom that has them.
    :param planned_by: id of the task that plans them, if one does.
    """

    arguments: list[dict[str, Any]] | XComArg
    planned_by: str | None = None


def planned(plan: PlanOperator, job: str) -> Groups:
    """Groups that a task plans when the DAG runs.

    :param job: of the step.
    """

    # not a partial: Airflow shows the source of what it maps by
    def of_job(group: dict[str, Any]) -> Any:
        return group.get(job) or {"tables": []}

    return Groups(plan.output.map(of_job), plan.task_id)


def mapped_step(
    operator: type[LakecdcJobOperator],
    config: LakeConfig,
    groups: Groups,
    options: Mapping[str, Any],
    **arguments: Any,
) -> MappedOperator:
    """One step of a DAG: a task per group of tables, named after its job unless ``arguments`` have a ``task_id``.

    :param groups: of tables.
    :param options: the job's options, as arguments of the operator.
    :param arguments: further arguments of the operator.
    """
    pool = {"pool": config.pool} if config.pool else {}
    # one that is configured to be dry stays dry
    dry_run = options.get("dry_run") or params.IS_DRY_RUN
    return operator.partial(
        catalog_conn_id=config.catalog,
        map_index_template=MAP_INDEX_TEMPLATE,
        retry_policy=retry_policy(),
        **config.spark.arguments(),
        **pool,
        **{**options, "dry_run": dry_run},
        planned_by=groups.planned_by,
        strict_run_conf=True,
        **{"task_id": operator.job_name, **arguments},
    ).expand_kwargs(groups.arguments)
