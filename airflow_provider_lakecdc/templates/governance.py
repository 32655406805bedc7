"""The governance DAGs: hourly for deletes, nightly for file layout, weekly for old rows, orphans and statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, BaseOperator, TriggerRule, chain
from airflow.sdk.definitions.mappedoperator import MappedOperator

from airflow_provider_lakecdc.operators.approve import ApproveOperator
from airflow_provider_lakecdc.operators.assess_tables import AssessTablesOperator
from airflow_provider_lakecdc.operators.plan import PLAN_KEY, PlanOperator, approved_of, dry_run_of
from airflow_provider_lakecdc.operators.remove_documents import RemoveDocumentsOperator
from airflow_provider_lakecdc.operators.report import ReportOperator
from airflow_provider_lakecdc.sensors.delete_debt import DeleteDebtSensor
from airflow_provider_lakecdc.templates.config import LakeConfig, Retention
from airflow_provider_lakecdc.templates.steps import (
    IS_DRY_RUN,
    ONLY_TABLES,
    debt_trigger,
    finish,
    mapped_step,
    new_dag,
    planned_step,
    run_params,
)
from lakecdc.contract.spec import GOVERN
from lakecdc.metadata.debt import DebtLimits
from lakecdc.metadata.names import AUDIT, HEALTH

#: the hourly compaction is light, to avoid conflicts with writers: only small or mostly deleted files, for a short time
LIGHT_COMPACTION: dict[str, Any] = {
    "min_input_files": 8,
    "small_file_ratio": 0.25,
    "delete_ratio": 0.9,
    "max_runtime": 900.0,
}
#: a time limit, so that a table with much debt does not delay the next run; the most valuable scopes come first
HOURLY_DELETES: dict[str, Any] = {"max_runtime": 1800.0}
#: orphan files are only listed until the option is set to false
WEEKLY_ORPHANS: dict[str, Any] = {"dry_run": True}
#: jobs for side tables, which are small, mostly append-only and have neither equality deletes nor readers by key
OF_SIDE_TABLES = ("compact_data_files", "rewrite_manifests", "expire_snapshots", "remove_orphan_files")
# a lake without writes for a year is not a failure
_FOR_EVER = timedelta(days=3650).total_seconds()
#: jobs in the order of work, with the template's default options
Steps = tuple[tuple[str, dict[str, Any]], ...]
#: options of each step
StepOptions = Mapping[str, Mapping[str, Any]]
#: the URI of a task's plan, empty if there is none
_PLAN = "{{{{ ti.xcom_pull(task_ids='{}', key='" + PLAN_KEY + "') or '' }}}}"
_FAILURES = """
`assess` reads each table's metadata, `plan` chooses the work, and each step is one task per group of tables, which
starts Spark only for tables that need it. `report` summarizes the results.

A table for which a step failed is skipped by the later steps of that run; all other tables continue. `finished` then
does not run, which fails the run.
"""
_HOURLY = """
Keeps **{tables}** in the catalog `{catalog}` fast between two nightly runs.

1. `rewrite_delete_files` turns equality deletes into position deletes (v2) or deletion vectors (v3), and merges those,
   with a time limit.
2. `compact_data_files` compacts clearly small files, with a time limit.

Side tables (remembered deletes, files read, quarantine, history) are compacted too.
"""
_NIGHTLY = """
Optimizes the files of **{tables}** in the catalog `{catalog}`.

1. `rewrite_delete_files` works as in the hourly DAG, without a time limit.
2. `sort_data_files` sorts by key where too many files overlap in their keys.
3. `compact_data_files` compacts small files and drops deleted rows.
4. `rewrite_manifests` makes scan planning fast again.
5. `tag_snapshots` tags the last snapshot of each past day.
6. `expire_snapshots` removes old snapshots and the files that only they reference.
7. `clean_side_tables` removes obsolete rows from side tables: remembered deletes, files read, quarantine, parked
   rounds.
8. `remove_documents` removes specs and reports of jobs that are older than `documents_max_age`, unless that is 0.

Steps 3, 4 and 6 also work on side tables and history tables.

If the configuration has checks, `check_tables` comes before step 6: a table that fails them keeps its snapshots.
"""


_WEEKLY = """
Removes what **{tables}** in the catalog `{catalog}` no longer need, and updates their statistics.

- `expire_partitions` removes rows that are older than the configured `retention` of their table, and keeps ingestion
  from inserting them again; it also removes audit rows older than `audit_max_age`.
- `remove_orphan_files` finds files that no metadata references, also of side tables. It only lists them unless its
  option `dry_run` is false: then they are removed reversibly, and deleted by the run a week later.
- `compute_statistics` counts distinct values of columns and the contents of partitions after enough rows have changed.
  The task is omitted if `statistics` is false in the configuration.
"""

_APPROVALS = """
For tables whose policy requires approval, `{job}_dry_run` lists what would be removed, `{job}_approval` asks, and
`{job}_approved` removes what was approved and is found again. Other tables do not wait for that; `report_approved`
summarizes it.
"""


def hourly_governance_dag(config: LakeConfig) -> DAG:
    """Create the DAG that rewrites delete files and then compacts lightly.

    :raises ValueError: the configuration has neither ``tables`` nor ``targets``.
    """
    steps: Steps = (("rewrite_delete_files", HOURLY_DELETES), ("compact_data_files", LIGHT_COMPACTION))
    return _chained(config, "hourly_governance", _HOURLY, steps)


def nightly_governance_dag(config: LakeConfig) -> DAG:
    """Create the DAG of delete files, sorting, compaction, manifests, tags, snapshot expiry and side tables.

    Tables with checks are checked before their snapshots expire.

    :raises ValueError: the configuration has neither ``tables`` nor ``targets``.
    """
    checks = config.job_options("nightly_governance", "check_tables").get("checks")
    steps: Steps = (
        ("rewrite_delete_files", {}),
        ("sort_data_files", {}),
        ("compact_data_files", {}),
        ("rewrite_manifests", {}),
        ("tag_snapshots", {}),
        *((("check_tables", {}),) if checks else ()),
        ("expire_snapshots", {}),
        ("clean_side_tables", {"quarantine_table": config.job_options("ingest", "ingest").get("quarantine_table")}),
    )
    return _chained(config, "nightly_governance", _NIGHTLY, steps, with_documents=config.documents_max_age > 0)


def weekly_governance_dag(config: LakeConfig) -> DAG:
    """Create the DAG that expires rows by retention, finds orphan files and computes stale statistics.

    :raises ValueError: the configuration has neither ``tables`` nor ``targets``.
    """
    steps: Steps = (("remove_orphan_files", WEEKLY_ORPHANS),)
    if config.retention or config.audit_max_age:
        steps = (("expire_partitions", {}), *steps)
    if config.statistics:
        steps = (*steps, ("compute_statistics", {}))
    return _chained(config, "weekly_governance", _WEEKLY, steps)


def _chained(config: LakeConfig, kind: str, doc: str, steps: Steps, *, with_documents: bool = False) -> DAG:
    names = [*config.maintained_tables, *config.fed_patterns]
    if not names:
        raise ValueError("Governance needs tables, or targets of ingestion, in the configuration.")
    doc = doc.format(tables=", ".join(names), catalog=config.catalog) + _FAILURES
    doc += "".join(_APPROVALS.format(job=job) for job, _ in steps if config.needs_approval(job))
    options = {job: config.job_options(kind, job, **preferred) for job, preferred in steps}
    with new_dag(config, kind, doc, run_params(None if config.selection.has_patterns else names)) as dag:
        assessed = _assessment(config, options)
        plan = _plan(config, kind, assessed, options)
        work = [planned_step(GOVERN, config, plan, {})] if config.one_application else _steps(config, plan, options)
        approvals: list[BaseOperator | MappedOperator] = [
            task
            for job, of_job in options.items()
            if job in plan.asks
            for task in _approval_steps(config, plan, job, of_job, work)
        ]
        limits = debt_trigger(config, kind)
        waits = [_debt(config, limits)] if limits else []
        tasks: list[BaseOperator | MappedOperator] = [*waits, assessed, plan, *work, _report(config, plan)]
        if with_documents:
            tasks.append(_documents(config))
        chain(*tasks)
        if approvals:
            approvals.append(_report_of_approved(config, plan, approvals))
        finish([*tasks, *approvals])
    return dag


def _steps(config: LakeConfig, plan: PlanOperator, options: StepOptions) -> list[MappedOperator]:
    tasks: list[MappedOperator] = []
    for job, of_job in options.items():
        before = [task.task_id for task in tasks]
        earlier: dict[str, Any] = {"after": before, "trigger_rule": TriggerRule.ALL_DONE} if before else {}
        tasks.append(planned_step(job, config, plan, of_job, **earlier))
    return tasks


def _approval_steps(
    config: LakeConfig,
    plan: PlanOperator,
    job: str,
    options: Mapping[str, Any],
    work: Sequence[MappedOperator],
) -> list[BaseOperator | MappedOperator]:
    """Return the dry run, the approval, and the run on what was approved, for tables that need approval."""
    dry_run = planned_step(
        job,
        config,
        plan,
        {**options, "dry_run": True},
        task_id=dry_run_of(job),
        after=[task.task_id for task in work],
        trigger_rule=TriggerRule.ALL_DONE,
    )
    approval = ApproveOperator(
        task_id=f"{job}_approval",
        job=job,
        found_by=dry_run.task_id,
        planned_by=plan.task_id,
        assessment=plan.assessment,
        response_timeout=timedelta(seconds=config.approval_timeout),
        # tables that could not be assessed must not block approvals of others
        trigger_rule=TriggerRule.ALL_DONE,
    )
    approved = mapped_step(job, config, approval.output, options, task_id=approved_of(job))
    chain(work[-1], dry_run, approval, approved)
    return [dry_run, approval, approved]


def _debt(config: LakeConfig, limits: DebtLimits) -> BaseOperator:
    return DeleteDebtSensor(
        task_id="debt",
        tables=config.maintained_tables,
        **asdict(limits),
        catalog_conn_id=config.catalog,
        deferrable=True,
        timeout=_FOR_EVER,
    )


def _assessment(config: LakeConfig, options: StepOptions) -> AssessTablesOperator:
    given = {job: dict(of_job) for job, of_job in options.items()}
    beside = {
        job: [*config.quarantine_tables, *of_job.pop("side_tables", ()), AUDIT, HEALTH]
        for job, of_job in given.items()
        if job in OF_SIDE_TABLES
    }
    own = {job: tables for job, of_job in given.items() if (tables := config.own_tables(job, of_job)) is not None}
    if (expiry := "expire_partitions") in given:
        moments = {AUDIT: "finished_at", HEALTH: "measured_at"} if config.audit_max_age else {}
        audit = {table: asdict(Retention(moment, config.audit_max_age)) for table, moment in moments.items()}
        own[expiry] = {**audit, **own[expiry]}
        beside[expiry] = [*audit]
    return AssessTablesOperator(
        task_id="assess",
        tables=config.maintained_tables,
        fed=config.fed_patterns,
        policy={pattern: asdict(policy) for pattern, policy in config.policy.items()},
        steps=given,
        beside=beside,
        own=own,
        history=config.history_tables,
        only=ONLY_TABLES,
        zone=config.schedules.timezone,
        query_log=asdict(config.query_log) if config.query_log else None,
        freshness=config.promises,
        is_dry=IS_DRY_RUN,
        strict_run_conf=True,
        catalog_conn_id=config.catalog,
    )


def _plan(config: LakeConfig, kind: str, assessed: AssessTablesOperator, options: StepOptions) -> PlanOperator:
    minutes = config.budgets.get(kind)
    return PlanOperator(
        task_id="plan",
        assessment=assessed.output,
        jobs=list(options),
        asks=[job for job in options if config.needs_approval(job)],
        budget_core_seconds=None if minutes is None else 60 * minutes,
        tables_per_application=config.tables_per_application,
        options={job: dict(of_job) for job, of_job in options.items()} if config.one_application else None,
        catalog_conn_id=config.catalog,
    )


def _report(config: LakeConfig, plan: PlanOperator) -> BaseOperator:
    """Return the task that reports on the plan, even after failures."""
    return ReportOperator(
        task_id="report",
        plan=_PLAN.format(plan.task_id),
        jobs=plan.jobs,
        one_task=GOVERN if config.one_application else None,
        alerts=asdict(config.alerts),
        prices=_prices(config),
        assessment=plan.assessment,
        is_dry=IS_DRY_RUN,
        catalog_conn_id=config.catalog,
        trigger_rule=TriggerRule.ALL_DONE,
    )


def _prices(config: LakeConfig) -> dict[str, Any] | None:
    return asdict(config.prices) if config.prices else None


def _report_of_approved(
    config: LakeConfig, plan: PlanOperator, approvals: Sequence[BaseOperator | MappedOperator]
) -> BaseOperator:
    """Return the task that reports on approvals, for which the other report does not wait."""
    plan_uri = _PLAN.format(plan.task_id)
    report = ReportOperator(
        task_id="report_approved",
        plan=plan_uri,
        jobs=plan.asks,
        of_approved=True,
        prices=_prices(config),
        trigger_rule=TriggerRule.ALL_DONE,
    )
    list(approvals) >> report
    return report


def _documents(config: LakeConfig) -> BaseOperator:
    """Return the task that removes old documents; the current run's are too new."""
    return RemoveDocumentsOperator(
        task_id="remove_documents",
        max_age=config.documents_max_age,
        is_dry=IS_DRY_RUN,
        # it runs after failures, so also after another task rejected the run's conf
        strict_run_conf=True,
        trigger_rule=TriggerRule.ALL_DONE,
    )
