"""Tells people which tables hurt, through a notifier of Airflow, and remembers what has been told."""

from __future__ import annotations

import logging
import pkgutil
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecdc.observe.assets import lake_asset
from lakecdc.contract.secrets import resolve
from lakecdc.metadata.hurts import Alerts, News, low_scores, unpaid_debts

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_lakecdc.governance.assessment import Assessment
    from lakecdc.metadata.plan import Action, Plan

log = logging.getLogger(__name__)
#: XCom with what there was to tell
HURTS_KEY = "hurts"
#: outcomes after which a job has no work left, as far as it goes
_PAID = ("done", "nothing")
_LOW = "low_scores"
# what stands for a job where a table could not be looked at
_LOOK = "assess"


def tell_hurts(
    context: Context,
    catalog_conn_id: str,
    alerts: Alerts,
    assessment: Assessment,
    plan: Plan,
    found: Sequence[tuple[Action, Mapping[str, Any]]],
) -> None:
    """Tell what has begun to hurt, and what hurts no more, since the runs before.

    What was told is remembered once the notifier has taken it, in the state of :func:`lake_asset`. So if it fails, all
    is told by the next try or run.

    :param found: actions of the plan, each with what its job has reported of the table.
    """
    state = context["asset_state_store"][lake_asset(catalog_conn_id)]
    owners = {each.table: each.owner for each in assessment.tables}
    news, known = News(), dict[str, Any]()
    if alerts.score_below is not None:
        health = {each.table: each.health for each in assessment.tables if each.health}
        told: Any = state.get(_LOW, [])
        low, known[_LOW] = low_scores(health, told, alerts.score_below, owners)
        news += low
    if alerts.unpaid_runs is not None:
        key = f"unpaid_runs:{context['ti'].dag_id}"
        runs: Any = state.get(key, {})
        undone, paid = _undone(plan, found, assessment), _paid(found, assessment)
        unpaid, known[key] = unpaid_debts(undone, paid, runs, alerts.unpaid_runs, owners)
        news += unpaid
    _tell(context, alerts, news)
    for key, value in known.items():
        state.set(key, value)


def _undone(
    plan: Plan, found: Sequence[tuple[Action, Mapping[str, Any]]], assessment: Assessment
) -> dict[str, dict[str, str]]:
    """Reasons why work was left undone, by job and table; a table that waits for its window waits by agreement."""
    waiting = {(each.job, each.table) for each in assessment.skipped}
    undone: dict[str, dict[str, str]] = {_LOOK: dict(assessment.unseen)} if assessment.unseen else {}
    for each in plan.skipped:
        if (each.job, each.table) not in waiting:
            undone.setdefault(each.job, {})[each.table] = each.reason
    for action, facts in found:
        if facts["outcome"] not in _PAID and not action.approve:
            undone.setdefault(action.job, {})[action.table] = facts.get("reason") or facts["outcome"]
    return undone


def _paid(found: Sequence[tuple[Action, Mapping[str, Any]]], assessment: Assessment) -> set[tuple[str, str]]:
    done = {(action.job, action.table) for action, facts in found if facts["outcome"] in _PAID}
    looked_at = {(_LOOK, each.table) for each in assessment.tables if not each.error}
    return done | looked_at | {(job, each.table) for each in assessment.tables for job in each.idle}


def _tell(context: Context, alerts: Alerts, news: News) -> None:
    context["ti"].xcom_push(key=HURTS_KEY, value={"began": list(news.began), "over": list(news.over)})
    for line in news.began:
        log.warning("It hurts: %s", line)
    for line in news.over:
        log.info("It is over: %s", line)
    if news and alerts.notifier:
        arguments = resolve(alerts.arguments, "alerts.arguments")
        # a path that leads nowhere fails the task, which is how somebody hears of it
        pkgutil.resolve_name(alerts.notifier)(**arguments)({**context, HURTS_KEY: str(news)})
