"""Plan a run of a governance DAG now, as its tasks ``assess`` and ``plan`` do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from airflow.sdk import DAG

from airflow_provider_lakecdc.governance.assessment import Assessment
from airflow_provider_lakecdc.operators.assess_tables import AssessTablesOperator
from airflow_provider_lakecdc.operators.plan import PlanOperator
from airflow_provider_lakecdc.templates import hourly_governance_dag, nightly_governance_dag, weekly_governance_dag
from airflow_provider_lakecdc.templates.config import LakeConfig
from lakecdc.contract.errors import InputError
from lakecdc.metadata.cost import Prices
from lakecdc.metadata.plan import Plan
from lakecdc.metadata.policy import matching

#: governance DAGs by their names on the command line and the page
DAGS: Mapping[str, Callable[[LakeConfig], DAG]] = {
    "hourly": hourly_governance_dag,
    "nightly": nightly_governance_dag,
    "weekly": weekly_governance_dag,
}


@dataclass(frozen=True)
class PlannedRun:
    dag_id: str
    assessment: Assessment
    plan: Plan
    prices: Prices | None = None

    @property
    def cost(self) -> float | None:
        """Return the predicted price of the CPU time, as far as known; None without prices."""
        return self.prices.of_cpu(self.plan.core_seconds) if self.prices else None

    @property
    def errors(self) -> dict[str, str]:
        """Return the errors of tables that could not be assessed."""
        return {each.table: each.error for each in self.assessment.tables if each.error}

    @property
    def absent(self) -> list[str]:
        """Return the tables that do not exist."""
        return [each.table for each in self.assessment.tables if each.is_absent]

    @property
    def idle_tables(self) -> int:
        """Return how many tables need nothing."""
        worked = {action.table for action in self.plan.chosen} | {left.table for left in self.plan.skipped}
        worked |= {*self.errors, *self.absent}
        return sum(each.table not in worked for each in self.assessment.tables)


def plan_run(config: LakeConfig, dag: str, tables: Sequence[str] = ()) -> PlannedRun:
    """Assess the tables and plan as the DAG's tasks ``assess`` and ``plan`` do, without changes.

    :param dag: one of :data:`DAGS`.
    :param tables: names and patterns of the tables to plan for; empty means all.
    :raises InputError: governance works on none of them.
    """
    created = DAGS[dag](config)
    assess, choose = created.get_task("assess"), created.get_task("plan")
    assert isinstance(assess, AssessTablesOperator) and isinstance(choose, PlanOperator)
    assessment = _restrict(assess.assessed(), tables)
    return PlannedRun(created.dag_id, assessment, choose.chosen(assessment), config.prices)


def _restrict(assessment: Assessment, tables: Sequence[str]) -> Assessment:
    """Restrict an assessment to some tables and their side tables."""
    if not tables:
        return assessment
    named = {*matching(tables, [each.table for each in assessment.tables])}
    included = {each.table for each in assessment.tables if {each.table, each.beside} & named}
    if not included:
        raise InputError(f"Governance works on none of {', '.join(tables)}.", hint="Check tables in the configuration.")
    return replace(
        assessment,
        tables=tuple(each for each in assessment.tables if each.table in included),
        actions=tuple(each for each in assessment.actions if each.table in included),
        skipped=tuple(each for each in assessment.skipped if each.table in included),
    )
