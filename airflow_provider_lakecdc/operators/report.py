"""The operator that reports the results of a plan, without Spark."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from airflow.sdk import BaseOperator, Context

from airflow_provider_lakecdc import settings
from airflow_provider_lakecdc.exceptions import JobBadInputError
from airflow_provider_lakecdc.governance.alerts import send_alerts
from airflow_provider_lakecdc.governance.assessment import parse_assessment
from airflow_provider_lakecdc.observe.assets import lake_asset
from airflow_provider_lakecdc.operators.plan import approved_of, dry_run_of
from airflow_provider_lakecdc.submit.documents import read_document
from airflow_provider_lakecdc.submit.reporting import reports_of, steps_of
from airflow_provider_lakecdc.submit.submission import is_true
from lakecdc.contract.fields import parse
from lakecdc.metadata.alert_state import Alerts
from lakecdc.metadata.cost import Prices
from lakecdc.metadata.plan import Action, Plan, parse_plan


class ReportOperator(BaseOperator):
    """Compare the results of a run with its plan. Place it behind the steps with ``trigger_rule="all_done"``.

    The return value counts the ``outcomes``, and has ``predicted_core_seconds`` and ``core_seconds`` of the actions
    with both, ``prediction_error`` (the median error, relative to the actual cost), the ``failed`` actions with their
    reasons, and the number of ``left_out`` ones. With ``prices`` it has the ``cost`` of the CPU time of all actions and
    its ``currency``.

    With ``alerts`` it reports tables that became unhealthy or recovered, in the log, in the XCom ``hurts`` and by a
    notifier. Sent alerts are recorded in the state of the catalog's asset (:func:`lake_asset`).

    :param plan: URI of the plan; empty if there is none. (templated)
    :param jobs: the steps, in the order of work.
    :param one_task: id of the single task that runs all steps; None if each step has a task of its name.
    :param of_approved: report only the jobs that need approval.
    :param alerts: fields of ``lakecdc.metadata.alert_state.Alerts``; no alert is sent without a limit.
    :param prices: fields of ``lakecdc.metadata.cost.Prices``; None shows no costs.
    :param assessment: URI of the assessment of the plan, which has the tables' scores; empty if there is none.
        (templated)
    :param is_dry: the jobs ran dry, so send no alerts. (templated)
    :param catalog_conn_id: connection of type ``iceberg``; default: ``[lakecdc] catalog_conn_id``.
    """

    template_fields: Sequence[str] = ("plan", "assessment", "is_dry")

    def __init__(
        self,
        *,
        plan: str,
        jobs: Sequence[str],
        one_task: str | None = None,
        of_approved: bool = False,
        alerts: Mapping[str, Any] | None = None,
        prices: Mapping[str, Any] | None = None,
        assessment: Any = "",
        is_dry: bool | str = False,
        catalog_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        self.catalog_conn_id = catalog_conn_id or settings.catalog_conn_id()
        self._alerts = parse(Alerts, alerts or {}, "alerts")
        self._prices = parse(Prices, prices, "prices") if prices else None
        # the asset's state is only accessible through an inlet
        state = {"inlets": [lake_asset(self.catalog_conn_id)]} if self._alerts.any_limit else {}
        super().__init__(**{**state, **kwargs})
        self.plan = plan
        self.jobs = list(jobs)
        self.one_task = one_task
        self.of_approved = of_approved
        self.assessment = assessment
        self.is_dry = is_dry

    def execute(self, context: Context) -> dict[str, Any]:
        """Report on the plan and the steps' reports.

        :raises JobBadInputError: a table could not be assessed.
        """
        if not self.plan:
            self.log.warning("There is no plan, so nothing was done.")
            return {"outcomes": {}}
        plan = parse_plan(read_document(self.plan))
        results: list[tuple[Action, Mapping[str, Any]]] = []
        failed: set[str] = set()
        for job, reported in self._reports(context).items():
            of_job = [action for action in plan.of_job(job) if action.approve or not self.of_approved]
            results += [(action, reported.get(action.table) or self._unreported(action, failed)) for action in of_job]
            failed |= {action.table for action, facts in results if facts["outcome"] in _FAILED}
        report = summary(plan, results) | _cost(results, self._prices)
        if self._prices:
            self.log.info("The CPU time of the run cost %s.", self._prices.format(report["cost"]))
        self.log.info("%s", ", ".join(f"{n} {outcome}" for outcome, n in report["outcomes"].items()) or "nothing")
        for what, reason in report["failed"].items():
            self.log.error("%s: %s", what, reason)
        if self.assessment:
            assessment = parse_assessment(read_document(self.assessment))
            if self._alerts.any_limit and not is_true(self.is_dry):
                send_alerts(context, self.catalog_conn_id, self._alerts, assessment, plan, results)
            if unreadable := assessment.unreadable:
                lines = "\n".join(f"  {table}: {error}" for table, error in unreadable.items())
                raise JobBadInputError(
                    f"{len(unreadable)} of {len(assessment.tables)} tables could not be assessed, and nothing was "
                    f"removed from them:\n{lines}",
                    hint='Fix these errors, or exclude the tables: "!" and the name in tables, where a pattern matches '
                    "it.",
                )
        return report

    def _unreported(self, action: Action, failed: Collection[str]) -> dict[str, Any]:
        """Return the result of an action that no report mentions; an earlier step may have failed for its table."""
        if action.table in failed:
            return {"outcome": _LEFT_OUT}
        return {"outcome": _PENDING if action.approve and not self.of_approved else _NO_REPORT}

    def _reports(self, context: Context) -> dict[str, dict[str, Mapping[str, Any]]]:
        """Return the reported results by job and table."""
        if self.of_approved:
            return {job: _of_approved(context, job) for job in self.jobs}
        if self.one_task is None:
            return {job: reports_of(context, job) for job in self.jobs}
        reported = steps_of(context, self.one_task)
        return {job: reported.get(job, {}) for job in self.jobs}


_NO_REPORT, _LEFT_OUT, _PENDING, _REFUSED = "no report", "left out", "approval pending", "not approved"
_FAILED = ("failed", "conflict", _NO_REPORT)


def _of_approved(context: Context, job: str) -> dict[str, Mapping[str, Any]]:
    """Return the results for tables with findings to approve, and for tables where nothing was found."""
    results: dict[str, Mapping[str, Any]] = {
        table: {"outcome": _REFUSED} if facts.get("metrics", {}).get("findings") else facts
        for table, facts in reports_of(context, dry_run_of(job)).items()
    }
    return results | reports_of(context, approved_of(job))


def _cost(results: Sequence[tuple[Action, Mapping[str, Any]]], prices: Prices | None) -> dict[str, Any]:
    """Return the price of the CPU time of all results, as far as it was measured; empty without prices."""
    if prices is None:
        return {}
    core_seconds = sum(facts.get("metrics", {}).get("core_seconds") or 0.0 for _, facts in results)
    return {"cost": prices.of_cpu(core_seconds), "currency": prices.currency}


def summary(plan: Plan, results: Sequence[tuple[Action, Mapping[str, Any]]]) -> dict[str, Any]:
    """Summarize the results of a plan: its actions, each with its job's report of the table."""
    known = [
        (action.core_seconds, facts["metrics"]["core_seconds"])
        for action, facts in results
        if facts["outcome"] == "done" and action.core_seconds and facts.get("metrics", {}).get("core_seconds")
    ]
    errors = [abs(predicted - actual) / actual for predicted, actual in known]
    return {
        "outcomes": dict(Counter(facts["outcome"] for _, facts in results)),
        "failed": {
            f"{action.job} {action.table}": facts.get("reason", facts["outcome"])
            for action, facts in results
            if facts["outcome"] in _FAILED
        },
        "left_out": len(plan.skipped),
        "predicted_core_seconds": round(sum(predicted for predicted, _ in known), 2),
        "core_seconds": round(sum(actual for _, actual in known), 2),
        "prediction_error": round(statistics.median(errors), 3) if errors else None,
    }
