"""The operator that plans the work of a governance run, without Spark."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from airflow.sdk import BaseOperator, Context

from airflow_provider_lakecdc import settings
from airflow_provider_lakecdc.audit import history
from airflow_provider_lakecdc.governance.assessment import Assessment, parse_assessment
from airflow_provider_lakecdc.hooks.catalog import get_catalog
from airflow_provider_lakecdc.submit.documents import Documents, read_document
from lakecdc.contract.options import OPTIONS
from lakecdc.contract.rewriting import MaintenanceOptions
from lakecdc.contract.spec import GOVERN
from lakecdc.metadata.calibration import Calibration, Run, calibrate
from lakecdc.metadata.plan import Action, Plan, choose

T = TypeVar("T")
# days and maximum of audit rows that calibrate predictions
_DAYS, _MOST_ROWS = 30, 5000
#: XCom with the URI of the plan
PLAN_KEY = "plan"
#: each entry has by job the arguments of one task
Tasks = list[dict[str, dict[str, Any]]]


class PlanOperator(BaseOperator):
    """Choose which jobs run on which tables: work that is due, then what helps readers most for its cost.

    The return value is what the steps are mapped over: a list whose entries have, by job, the arguments of one task of
    that job. The log lists skipped work with reasons. The XCom ``plan`` has the URI of the plan.

    :param assessment: URI that ``AssessTablesOperator`` returned. (templated)
    :param jobs: jobs to plan.
    :param asks: jobs that need approval if a table's policy requires it; dry runs are planned for such tables, under
        the name :func:`dry_run_of` the job.
    :param budget_core_seconds: limit of the predicted cost of all chosen work; None means no limit.
    :param tables_per_application: tables per task; 0 puts all tables of a job into one.
    :param options: options of each job for all tables. If given, a single task runs all jobs, as ``steps`` of a
        ``GovernOperator``.
    :param catalog_conn_id: connection of type ``iceberg``, whose ``lakecdc.audit`` calibrates predictions; default:
        ``[lakecdc] catalog_conn_id``. (templated)
    :param documents_uri: folder for the plan; default: ``[lakecdc] documents_uri``. (templated)
    """

    template_fields: Sequence[str] = ("assessment", "catalog_conn_id", "documents_uri")

    def __init__(
        self,
        *,
        assessment: Any,
        jobs: Sequence[str],
        asks: Sequence[str] = (),
        budget_core_seconds: float | None = None,
        tables_per_application: int = 0,
        options: Mapping[str, Mapping[str, Any]] | None = None,
        catalog_conn_id: str | None = None,
        documents_uri: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.catalog_conn_id = catalog_conn_id or settings.catalog_conn_id()
        self.options = None if options is None else dict(options)
        self.assessment = assessment
        self.jobs = list(jobs)
        self.asks = list(asks)
        self.budget_core_seconds = budget_core_seconds
        self.tables_per_application = tables_per_application
        self.documents_uri = documents_uri or settings.documents_uri()

    def execute(self, context: Context) -> Tasks:
        """Choose the work of the run, and return by job the arguments of one task each."""
        assessment = parse_assessment(read_document(self.assessment))
        plan = self.chosen(assessment)
        self._log(plan)
        uri = Documents.of_try(self.documents_uri, context).write(
            "plan.json", json.dumps(plan.facts(), allow_nan=False)
        )
        context["ti"].xcom_push(key=PLAN_KEY, value=uri)
        tasks = tasks_of(plan, assessment, self.jobs, self.tables_per_application)
        tasks = tasks if self.options is None else one_task(tasks, self.options)
        dry_runs = dry_runs_of(plan, assessment, self.asks, self.tables_per_application)
        nothing: dict[str, dict[str, Any]] = {}
        return [{**each, **dry} for each, dry in itertools.zip_longest(tasks, dry_runs, fillvalue=nothing)]

    def chosen(self, assessment: Assessment) -> Plan:
        """Choose the work, with predictions calibrated by earlier runs."""
        known = self._calibration()
        actions = [
            action
            if action.guessed_core_seconds is None
            else replace(action, core_seconds=known.predict(action.job, action.table, action.guessed_core_seconds))
            for action in assessment.actions
        ]
        return choose(actions, assessment.skipped, self.budget_core_seconds, self.asks)

    def _calibration(self) -> Calibration:
        try:
            since = datetime.now(UTC) - timedelta(days=_DAYS)
            rows = history(get_catalog(self.catalog_conn_id), since=since, limit=_MOST_ROWS)
        except Exception:
            # predictions without calibration are better than none
            self.log.warning("Cannot read the cost of earlier runs; predictions are not calibrated.", exc_info=True)
            return Calibration()
        return calibrate(
            Run(row.job, row.table, row.guessed_core_seconds, row.core_seconds)
            for row in rows
            if row.outcome == "done" and not row.is_dry_run and row.guessed_core_seconds and row.core_seconds
        )

    def _log(self, plan: Plan) -> None:
        limit = "" if plan.budget_core_seconds is None else f" of {plan.budget_core_seconds:g}"
        self.log.info("%d actions, predicted to take %g core-seconds%s:", len(plan.chosen), plan.core_seconds, limit)
        for action in plan.chosen:
            cost = "?" if action.core_seconds is None else f"{action.core_seconds:g}"
            due = f"; {action.due}" if action.due else ""
            due += "; needs approval" if action.approve else ""
            self.log.info("%s %s: %s core-s, %s%s", action.job, action.table, cost, action.reason, due)
        for reason, count in Counter(skipped.reason for skipped in plan.skipped).most_common():
            first = next(skipped for skipped in plan.skipped if skipped.reason == reason)
            self.log.info("skipped: %s %s and %d others: %s", first.job, first.table, count - 1, reason)


def dry_run_of(job: str) -> str:
    """Return the task name of the dry run of a job that needs approval."""
    return f"{job}_dry_run"


def approved_of(job: str) -> str:
    """Return the task name of a job's run on what was approved."""
    return f"{job}_approved"


def tasks_of(plan: Plan, assessment: Assessment, jobs: Sequence[str], tables_per_application: int = 0) -> Tasks:
    """Return the arguments of each job's tasks; entry n has the n-th task of every job.

    Tables with different options have separate tasks, and tables that need approval have none.

    :param tables_per_application: tables per task; 0 puts all with the same options into one.
    """
    chosen = {job: [action for action in plan.of_job(job) if not action.approve] for job in jobs}
    return _in_tasks(chosen, assessment, tables_per_application)


def dry_runs_of(plan: Plan, assessment: Assessment, asks: Sequence[str], tables_per_application: int = 0) -> Tasks:
    """Return the arguments of the dry runs that need approval, in the form of :func:`tasks_of`."""
    chosen = {
        dry_run_of(job): [
            replace(action, options={**action.options, "dry_run": True})
            for action in plan.of_job(job)
            if action.approve
        ]
        for job in asks
    }
    return _in_tasks(chosen, assessment, tables_per_application)


def _in_tasks(chosen: Mapping[str, Sequence[Action]], assessment: Assessment, tables_per_application: int) -> Tasks:
    beside = {each.table for each in assessment.tables if each.beside is not None}
    order = {each.table: number for number, each in enumerate(assessment.tables)}
    by_name = {
        name: _tasks(sorted(actions, key=lambda action: order.get(action.table, 0)), beside, tables_per_application)
        for name, actions in chosen.items()
    }
    rows = itertools.zip_longest(*by_name.values(), fillvalue={})
    return [dict(zip(by_name, each, strict=True)) for each in rows]


def one_task(tasks: Tasks, options: Mapping[str, Mapping[str, Any]]) -> Tasks:
    """Return the arguments of a single task for the work of all, step by step in one Spark application."""
    steps: list[dict[str, Any]] = []
    predicted: dict[str, dict[str, float]] = {}
    guessed: dict[str, dict[str, float]] = {}
    for job, of_job in options.items():
        for task in (each[job] for each in tasks if each.get(job)):
            merged = {**of_job, **task["policy_options"]}
            steps.append({"job": job, "tables": task["tables"], "options": merged})
            predicted[job] = predicted.get(job, {}) | task["predicted_core_seconds"][job]
            guessed[job] = guessed.get(job, {}) | task["guessed_core_seconds"][job]
    tables = list(dict.fromkeys(table for step in steps for table in step["tables"]))
    costs = {"predicted_core_seconds": predicted, "guessed_core_seconds": guessed}
    return [{GOVERN: {"tables": tables, "steps": steps, **costs}}] if steps else []


def _tasks(actions: Sequence[Action], beside: set[str], tables_per_application: int) -> list[dict[str, Any]]:
    alike: dict[str, list[Action]] = {}
    for action in actions:
        alike.setdefault(json.dumps(action.options, sort_keys=True, default=str), []).append(action)
    groups = (group for members in alike.values() for group in groups_of_tables(members, tables_per_application))
    return [_task(group, beside) for group in groups]


def groups_of_tables(tables: Sequence[T], tables_per_application: int = 0) -> list[list[T]]:
    """Split tables into groups, for ``Operator.partial(…).expand(tables=groups_of_tables(…))``.

    Starting Spark takes about 8 s and another table nearly nothing, so by default all tables share an application.

    :param tables: ``namespace.name`` of each table, in the order of work.
    :param tables_per_application: size of a group; 0 means one group.
    :raises ValueError: the size is negative or no table is given.
    """
    if tables_per_application < 0:
        raise ValueError(f"tables_per_application must be 0 (one group) or more, got {tables_per_application}.")
    if not tables:
        raise ValueError("No table is given. A mapped task without tables would be skipped silently.")
    size = tables_per_application or len(tables)
    return [list(tables[start : start + size]) for start in range(0, len(tables), size)]


def task_arguments(tables: list[str], beside: list[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a job's task; without their main tables, side tables are passed as tables."""
    side_tables = {"side_tables": beside} if tables and beside else {}
    return {"tables": tables or beside, "policy_options": {**options, **side_tables}}


def _task(actions: Sequence[Action], beside: set[str]) -> dict[str, Any]:
    tables = [action.table for action in actions if action.table not in beside]
    more = [action.table for action in actions if action.table in beside]
    if not issubclass(OPTIONS[actions[0].job], MaintenanceOptions):
        tables, more = [*tables, *more], []
    arguments = task_arguments(tables, more, actions[0].options)
    if protected := {action.table: asdict(action.protection) for action in actions if action.protection}:
        arguments["policy_options"]["protection"] = protected
    predicted = [action for action in actions if action.core_seconds is not None]
    job = actions[0].job
    return {
        **arguments,
        "predicted_core_seconds": {job: {action.table: action.core_seconds for action in predicted}},
        "guessed_core_seconds": {job: {action.table: action.guessed_core_seconds for action in predicted}},
    }
