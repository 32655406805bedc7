"""The DAGs that pay back what ingestion owes: hourly the deletes, nightly the layout of the files, weekly old rows,
files that nothing refers to and statistics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, BaseOperator, TriggerRule, chain
from airflow.sdk.definitions.mappedoperator import MappedOperator

from airflow_provider_lakecdc.operators.approve import ApproveOperator
from airflow_provider_lakecdc.operators.assess_tables import AssessTablesOperator
from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from airflow_provider_lakecdc.operators.check_tables import CheckTablesOperator
from airflow_provider_lakecdc.operators.clean_side_tables import CleanSideTablesOperator
from airflow_provider_lakecdc.operators.compact_data_files import CompactDataFilesOperator
from airflow_provider_lakecdc.operators.compute_statistics import ComputeStatisticsOperator
from airflow_provider_lakecdc.operators.expire_partitions import ExpirePartitionsOperator
from airflow_provider_lakecdc.operators.expire_snapshots import ExpireSnapshotsOperator
from airflow_provider_lakecdc.operators.govern import GovernOperator
from airflow_provider_lakecdc.operators.plan import PLAN_KEY, PlanOperator, approved_of, dry_run_of
from airflow_provider_lakecdc.operators.remove_documents import RemoveDocumentsOperator
from airflow_provider_lakecdc.operators.remove_orphan_files import RemoveOrphanFilesOperator
from airflow_provider_lakecdc.operators.report import ReportOperator
from airflow_provider_lakecdc.operators.rewrite_delete_files import RewriteDeleteFilesOperator
from airflow_provider_lakecdc.operators.rewrite_manifests import RewriteManifestsOperator
from airflow_provider_lakecdc.operators.sort_data_files import SortDataFilesOperator
from airflow_provider_lakecdc.operators.tag_snapshots import TagSnapshotsOperator
from airflow_provider_lakecdc.sensors.delete_debt import DeleteDebtSensor
from airflow_provider_lakecdc.submit.retry_policy import retry_policy
from airflow_provider_lakecdc.templates.config import LakeConfig, Retention
from airflow_provider_lakecdc.templates.params import IS_DRY_RUN, ONLY_TABLES, run_params
from airflow_provider_lakecdc.templates.steps import Groups, awaited_debt, finish, mapped_step, new_dag, planned
from lakecdc.metadata.debt import DebtLimits
from lakecdc.metadata.names import AUDIT, HEALTH

#: the hourly compaction stays out of the writers' way: only plainly small or mostly dead files, and not for long
LIGHT_COMPACTION: dict[str, Any] = {
    "min_input_files": 8,
    "small_file_ratio": 0.25,
    "delete_ratio": 0.9,
    "max_runtime": 900.0,
}
#: a table that owes very much must not keep the next hour's run waiting; the most valuable scopes come first
HOURLY_DELETES: dict[str, Any] = {"max_runtime": 1800.0}
#: orphans are told and stay, until somebody has looked at them and says otherwise
WEEKLY_ORPHANS: dict[str, Any] = {"dry_run": True}
#: jobs that side tables need: they are small, only appended to, and have neither equality deletes nor readers by key
OF_SIDE_TABLES = (
    *(CompactDataFilesOperator, RewriteManifestsOperator, ExpireSnapshotsOperator),
    RemoveOrphanFilesOperator,
)
# a lake that nobody writes to for a year is no failure
_FOR_EVER = timedelta(days=3650).total_seconds()
#: operators in the order of work, each with the options that the template prefers
Steps = tuple[tuple[type[LakecdcJobOperator], dict[str, Any]], ...]
#: the URI of the plan that a task has made, empty if it has made none
_PLAN = "{{{{ ti.xcom_pull(task_ids='{}', key='" + PLAN_KEY + "') or '' }}}}"
_FAILURES = """
`assess` looks at each table's metadata, `plan` chooses what is done, and each step is one task per group of tables:
Spark starts for those alone that need something. `report` tells what came of it.

A table that a step has failed for is left out of the later steps of that run; all other tables go on. `finished` then
does not run, which makes the whole run a failed one.
"""
_HOURLY = """
Keeps **{tables}** in the catalog `{catalog}` fast between two nights.

1. `rewrite_delete_files` turns equality deletes into position deletes (v2) or deletion vectors (v3), and merges those,
   for a bounded time.
2. `compact_data_files` joins plainly small files, for a bounded time.

The tables that ingestion keeps beside them (remembered deletes, files read, quarantine, history) are compacted too.
"""
_NIGHTLY = """
Puts the files of **{tables}** in the catalog `{catalog}` in order.

1. `rewrite_delete_files` does as in the hourly DAG, to the end.
2. `sort_data_files` sorts by key where too many files hold the same keys.
3. `compact_data_files` joins small files and drops deleted rows.
4. `rewrite_manifests` makes planning cheap again.
5. `tag_snapshots` keeps a tag on the last snapshot of each of the past days.
6. `expire_snapshots` removes old snapshots and the files that only they held.
7. `clean_side_tables` removes what nobody needs from the tables that ingestion keeps beside them: remembered deletes,
   files read, quarantine, parked rounds.
8. `remove_documents` removes specs and reports of jobs that are older than `documents_max_age`, unless that is 0.

Steps 3, 4 and 6 also work on the files of these tables, and on history tables.

Where the configuration has checks, `check_tables` comes before step 6: a table that fails them keeps its snapshots.
"""


_WEEKLY = """
Removes what **{tables}** in the catalog `{catalog}` keep for nothing, and renews what query planners know of them.

- `expire_partitions` removes rows that are older than the configuration's `retention` of their table, and keeps
  ingestion from taking them in again, and rows of the audit that are older than `audit_max_age`.
- `remove_orphan_files` looks for files that nothing refers to, also of the tables that ingestion keeps beside them. It
  only tells them, unless its option `dry_run` is false: then they are taken away, and deleted by the run a week later.
- `compute_statistics` counts distinct values of columns, and what is in each partition, where too many rows have
  changed since the last time. With `statistics` set to false in the configuration there is no such task.
"""

_APPROVALS = """
Of the tables whose policy asks for it, `{job}_dry_run` finds what would go, `{job}_approval` asks a person, and
`{job}_approved` takes what was approved and is found again. Other tables do not wait for that; `report_approved` tells
what came of it.
"""


def hourly_governance_dag(config: LakeConfig) -> DAG:
    """Rewrite delete files, then a light compaction.

    :param config: needs ``tables`` or ``targets``.
    :raises ValueError: if it has neither.
    """
    steps: Steps = (
        (RewriteDeleteFilesOperator, HOURLY_DELETES),
        (CompactDataFilesOperator, LIGHT_COMPACTION),
    )
    return _chained(config, "hourly_governance", _HOURLY, steps)


def nightly_governance_dag(config: LakeConfig) -> DAG:
    """Rewrite delete files, sort, compact, rewrite manifests, tag the day, expire snapshots, clean up beside tables.

    Before snapshots expire, the tables that have checks are checked.

    :param config: needs ``tables`` or ``targets``.
    :raises ValueError: if it has neither.
    """
    checks = config.job_options("nightly_governance", CheckTablesOperator.job_name).get("checks")
    steps: Steps = (
        (RewriteDeleteFilesOperator, {}),
        (SortDataFilesOperator, {}),
        (CompactDataFilesOperator, {}),
        (RewriteManifestsOperator, {}),
        (TagSnapshotsOperator, {}),
        *(((CheckTablesOperator, {}),) if checks else ()),
        (ExpireSnapshotsOperator, {}),
        (CleanSideTablesOperator, {"quarantine_table": config.job_options("ingest", "ingest").get("quarantine_table")}),
    )
    return _chained(config, "nightly_governance", _NIGHTLY, steps, with_documents=config.documents_max_age > 0)


def weekly_governance_dag(config: LakeConfig) -> DAG:
    """Expire old rows of the tables that have a retention, look for orphan files, compute stale statistics.

    :param config: needs ``tables`` or ``targets``.
    :raises ValueError: if it has neither.
    """
    steps: Steps = ((RemoveOrphanFilesOperator, WEEKLY_ORPHANS),)
    if config.retention or config.audit_max_age:
        steps = ((ExpirePartitionsOperator, {}), *steps)
    if config.statistics:
        steps = (*steps, (ComputeStatisticsOperator, {}))
    return _chained(config, "weekly_governance", _WEEKLY, steps)


def _chained(config: LakeConfig, kind: str, doc: str, steps: Steps, *, with_documents: bool = False) -> DAG:
    names = [*config.maintained_tables, *config.fed_patterns]
    if not names:
        raise ValueError("Governance needs tables, or targets of ingestion.")
    doc = doc.format(tables=", ".join(names), catalog=config.catalog) + _FAILURES
    doc += "".join(_APPROVALS.format(job=job.job_name) for job, _ in steps if config.asks_about(job.job_name))
    options = {step: config.job_options(kind, step.job_name, **preferred) for step, preferred in steps}
    with new_dag(config, kind, doc, run_params(None if config.finds_tables else names)) as dag:
        assessed = _assessment(config, options)
        plan = _plan(config, kind, assessed, options)
        work = [_one_step(config, plan)] if config.one_application else _steps(config, plan, options)
        asked: list[BaseOperator | MappedOperator] = [
            task
            for step, of_step in options.items()
            if step.job_name in plan.asks
            for task in _asked(config, plan, step, of_step, work)
        ]
        limits = awaited_debt(config, kind)
        awaited = [_debt(config, limits)] if limits else []
        tasks: list[BaseOperator | MappedOperator] = [*awaited, assessed, plan, *work, _report(config, plan)]
        if with_documents:
            tasks.append(_documents(config))
        chain(*tasks)
        if asked:
            asked.append(_report_of_approved(plan, asked))
        finish([*tasks, *asked])
    return dag


def _steps(
    config: LakeConfig, plan: PlanOperator, options: Mapping[type[LakecdcJobOperator], Mapping[str, Any]]
) -> list[MappedOperator]:
    """The tasks that do the work, one after another.

    :param options: of each step.
    """
    found: list[MappedOperator] = []
    for step, of_step in options.items():
        before = [task.task_id for task in found]
        earlier = {"after": before, "trigger_rule": TriggerRule.ALL_DONE} if before else {}
        found.append(mapped_step(step, config, planned(plan, step.job_name), of_step, **earlier))
    return found


def _one_step(config: LakeConfig, plan: PlanOperator) -> MappedOperator:
    """The task that does all of it in one Spark application."""
    return mapped_step(GovernOperator, config, planned(plan, GovernOperator.job_name), {})


def _asked(
    config: LakeConfig,
    plan: PlanOperator,
    step: type[LakecdcJobOperator],
    options: Mapping[str, Any],
    work: Sequence[MappedOperator],
) -> list[BaseOperator | MappedOperator]:
    """A step for the tables of which a person is asked: its dry run, the question, and what was approved.

    :param work: the tasks that work on all other tables.
    """
    found = mapped_step(
        step,
        config,
        planned(plan, dry_run_of(step.job_name)),
        {**options, "dry_run": True},
        task_id=dry_run_of(step.job_name),
        after=[task.task_id for task in work],
        trigger_rule=TriggerRule.ALL_DONE,
    )
    approval = ApproveOperator(
        task_id=f"{step.job_name}_approval",
        job=step.job_name,
        found_by=found.task_id,
        planned_by=plan.task_id,
        assessment=plan.assessment,
        response_timeout=timedelta(seconds=config.approval_timeout),
        # a table that could not be looked at keeps no other from being asked about
        trigger_rule=TriggerRule.ALL_DONE,
        retry_policy=retry_policy(),
    )
    approved = mapped_step(step, config, Groups(approval.output), options, task_id=approved_of(step.job_name))
    chain(work[-1], found, approval, approved)
    return [found, approval, approved]


def _debt(config: LakeConfig, limits: DebtLimits) -> BaseOperator:
    """The task that waits until it is worth a run."""
    return DeleteDebtSensor(
        task_id="debt",
        tables=config.maintained_tables,
        **asdict(limits),
        catalog_conn_id=config.catalog,
        deferrable=True,
        timeout=_FOR_EVER,
        retry_policy=retry_policy(),
    )


def _assessment(
    config: LakeConfig, options: Mapping[type[LakecdcJobOperator], Mapping[str, Any]]
) -> AssessTablesOperator:
    """The task that looks at the tables.

    :param options: of each step.
    """
    given = {step.job_name: dict(of_step) for step, of_step in options.items()}
    beside = {
        step.job_name: [*config.quarantine_tables, *given[step.job_name].pop("side_tables", ()), AUDIT, HEALTH]
        for step in options
        if step in OF_SIDE_TABLES
    }
    own = {job: tables for job, of_job in given.items() if (tables := config.own_tables(job, of_job)) is not None}
    if (expiry := ExpirePartitionsOperator.job_name) in given:
        kept = {table: asdict(of) for table, of in _kept_of_audit(config).items()}
        own[expiry] = {**kept, **own[expiry]}
        beside[expiry] = [*kept]
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
        is_dry=IS_DRY_RUN,
        strict_run_conf=True,
        catalog_conn_id=config.catalog,
        retry_policy=retry_policy(),
    )


def _kept_of_audit(config: LakeConfig) -> dict[str, Retention]:
    """How long the tables of the lake as a whole keep their rows."""
    moments = {AUDIT: "finished_at", HEALTH: "measured_at"} if config.audit_max_age else {}
    return {table: Retention(moment, config.audit_max_age) for table, moment in moments.items()}


def _plan(
    config: LakeConfig,
    kind: str,
    assessed: AssessTablesOperator,
    options: Mapping[type[LakecdcJobOperator], Mapping[str, Any]],
) -> PlanOperator:
    """The task that chooses what is done.

    :param options: of each step.
    """
    minutes = config.budgets.get(kind)
    return PlanOperator(
        task_id="plan",
        assessment=assessed.output,
        jobs=[step.job_name for step in options],
        asks=[step.job_name for step in options if config.asks_about(step.job_name)],
        budget_core_seconds=None if minutes is None else 60 * minutes,
        tables_per_application=config.tables_per_application,
        options={step.job_name: dict(given) for step, given in options.items()} if config.one_application else None,
        catalog_conn_id=config.catalog,
        retry_policy=retry_policy(),
    )


def _report(config: LakeConfig, plan: PlanOperator) -> BaseOperator:
    """The task that tells what came of the plan, whatever came of it."""
    return ReportOperator(
        task_id="report",
        plan=_PLAN.format(plan.task_id),
        jobs=plan.jobs,
        one_task=GovernOperator.job_name if config.one_application else None,
        alerts=asdict(config.alerts),
        assessment=plan.assessment,
        is_dry=IS_DRY_RUN,
        catalog_conn_id=config.catalog,
        trigger_rule=TriggerRule.ALL_DONE,
        retry_policy=retry_policy(),
    )


def _report_of_approved(plan: PlanOperator, asked: Sequence[BaseOperator | MappedOperator]) -> BaseOperator:
    """The task that tells what came of what people were asked about, which the other report does not wait for.

    :param asked: the tasks of these steps.
    """
    told = ReportOperator(
        task_id="report_approved",
        plan=_PLAN.format(plan.task_id),
        jobs=plan.asks,
        of_approved=True,
        trigger_rule=TriggerRule.ALL_DONE,
        retry_policy=retry_policy(),
    )
    list(asked) >> told
    return told


def _documents(config: LakeConfig) -> BaseOperator:
    """The step that removes old documents; those of the run are too young."""
    return RemoveDocumentsOperator(
        task_id="remove_documents",
        max_age=config.documents_max_age,
        is_dry=IS_DRY_RUN,
        # it goes on after a failure, and so after the refusal of another task
        strict_run_conf=True,
        trigger_rule=TriggerRule.ALL_DONE,
        retry_policy=retry_policy(),
    )
