"""Send alerts about unhealthy tables through an Airflow notifier, and remember the sent ones."""

from __future__ import annotations

import asyncio
import logging
import pkgutil
from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import DAG, Context

from airflow_provider_lakecdc.governance.assessment import Assessment
from airflow_provider_lakecdc.observe.assets import lake_asset
from lakecdc.contract.secrets import resolve
from lakecdc.metadata.alert_state import Alerts, News, low_scores, missed_promises, unpaid_debts
from lakecdc.metadata.plan import Action, Plan

log = logging.getLogger(__name__)
#: XCom with the alerts
ALERTS_KEY = "hurts"
#: outcomes of jobs that have no work left
_PAID = ("done", "nothing")
_LOW, _LATE = "low_scores", "missed_freshness"
#: actions of a plan, each with its job's report of the table
Results = Sequence[tuple[Action, Mapping[str, Any]]]
# in place of a job, for tables that could not be assessed
_ASSESS = "assess"


def send_alerts(
    context: Context,
    catalog_conn_id: str,
    alerts: Alerts,
    assessment: Assessment,
    plan: Plan,
    results: Results,
) -> None:
    """Alert about tables that became unhealthy or recovered since the earlier runs.

    Sent alerts are recorded in the state of :func:`lake_asset` after the notifier accepted them, so that the next try
    or run repeats them if the notifier fails.
    """
    state = context["asset_state_store"][lake_asset(catalog_conn_id)]
    owners = {each.table: each.owner for each in assessment.tables}
    news, known, dag_id = News(), dict[str, Any](), context["ti"].dag_id
    if alerts.score_below is not None:
        health = {each.table: each.health for each in assessment.tables if each.health}
        alerted = _alerted_tables(state.get(_LOW, {}), assessment, dag_id)
        low, tables = low_scores(health, alerted, alerts.score_below, owners)
        known[_LOW] = {table: alerted.get(table, [dag_id]) for table in tables}
        news += low
    if alerts.missed_freshness:
        freshness = {each.table: each.freshness for each in assessment.tables if not each.error}
        alerted = _alerted_tables(state.get(_LATE, {}), assessment, dag_id)
        late, tables = missed_promises(freshness, alerted, owners)
        known[_LATE] = {table: alerted.get(table, [dag_id]) for table in tables}
        news += late
    if alerts.unpaid_runs is not None:
        key = f"unpaid_runs:{dag_id}"
        runs: Any = state.get(key, {})
        undone, paid = _undone(plan, results, assessment), _paid(results, assessment)
        unpaid, known[key] = unpaid_debts(undone, paid, runs, alerts.unpaid_runs, owners)
        news += unpaid
    _notify(context, alerts, news)
    for key, value in known.items():
        state.set(key, value)


def _alerted_tables(stored: Any, assessment: Assessment, dag_id: str) -> dict[str, list[str]]:
    """Add this DAG to the alerted tables that it assesses; drop tables that are in no configuration any more.

    :param stored: the DAGs that have assessed a table since it was alerted about, by table.
    """
    assessed = {each.table for each in assessment.tables}
    by_table = {}
    for table, dags in stored.items():
        own = table in assessed or (assessment.is_partial and dag_id in dags)
        by_table[table] = sorted({*dags} - {dag_id} | ({dag_id} if own else set()))
    return {table: dags for table, dags in by_table.items() if dags}


def _undone(plan: Plan, results: Results, assessment: Assessment) -> dict[str, dict[str, str]]:
    """Return the reasons of undone work by job and table, except for tables outside their time window."""
    waiting = {(each.job, each.table) for each in assessment.skipped}
    undone: dict[str, dict[str, str]] = {_ASSESS: dict(assessment.unreadable)} if assessment.unreadable else {}
    for each in plan.skipped:
        if (each.job, each.table) not in waiting:
            undone.setdefault(each.job, {})[each.table] = each.reason
    for action, facts in results:
        if facts["outcome"] not in _PAID and not action.approve:
            undone.setdefault(action.job, {})[action.table] = facts.get("reason") or facts["outcome"]
    return undone


def _paid(results: Results, assessment: Assessment) -> set[tuple[str, str]]:
    done = {(action.job, action.table) for action, facts in results if facts["outcome"] in _PAID}
    assessed = {(_ASSESS, each.table) for each in assessment.tables if not each.error}
    return done | assessed | {(job, each.table) for each in assessment.tables for job in each.idle}


def _notify(context: Context, alerts: Alerts, news: News) -> None:
    context["ti"].xcom_push(key=ALERTS_KEY, value={"began": list(news.began), "over": list(news.over)})
    for line in news.began:
        log.warning("Unhealthy: %s", line)
    for line in news.over:
        log.info("Recovered: %s", line)
    if news and alerts.notifier:
        _send(alerts.notifier, alerts.arguments, {**context}, str(news))


async def alert_missed_deadline(
    promised: str, notifier: str, arguments: Mapping[str, Any], context: Mapping[str, Any]
) -> None:
    """Alert about an ingest run that did not succeed within a promised freshness; Airflow's triggerer calls it."""
    run = context["dag_run"]
    # backfills queue many runs, and promise nothing
    if run["run_type"] != "backfill":
        text = f"{run['dag_id']}: run {run['dag_run_id']} has not succeeded within the promised freshness of {promised}"
        # templates of the notifier may name the DAG, as in alerts of tasks
        dag = DAG(run["dag_id"], schedule=None)
        await asyncio.to_thread(_send, notifier, arguments, {**context, "dag": dag}, text)


def _send(notifier: str, arguments: Mapping[str, Any], context: dict[str, Any], text: str) -> None:
    # a wrong path fails the task, so that it is noticed
    sender = pkgutil.resolve_name(notifier)(**resolve(arguments, "alerts.arguments"))
    sender({**context, ALERTS_KEY: text})
