"""What a run of a governance DAG would do now: its tasks ``assess`` and ``plan`` without a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_provider_lakecdc import templates
from airflow_provider_lakecdc.operators.assess_tables import AssessTablesOperator
from airflow_provider_lakecdc.operators.plan import PlanOperator
from lakecdc.contract.errors import InputError
from lakecdc.metadata.policy import matching

if TYPE_CHECKING:
    from airflow.sdk import DAG

    from airflow_provider_lakecdc.governance.assessment import Assessment
    from airflow_provider_lakecdc.templates.config import LakeConfig
    from lakecdc.metadata.plan import Plan

#: the governance DAGs by what they are called on the command line and on the page
DAGS: Mapping[str, Callable[[LakeConfig], DAG]] = {
    "hourly": templates.hourly_governance_dag,
    "nightly": templates.nightly_governance_dag,
    "weekly": templates.weekly_governance_dag,
}


@dataclass(frozen=True)
class Planned:
    """What a run would do.

    :param dag_id: of the DAG.
    :param assessment: what its tables need.
    :param plan: what would be done of that.
    """

    dag_id: str
    assessment: Assessment
    plan: Plan

    @property
    def errors(self) -> dict[str, str]:
        """Why a table could not be looked at, by table."""
        return {each.table: each.error for each in self.assessment.tables if each.error}

    @property
    def absent(self) -> list[str]:
        """Tables that the catalog does not have."""
        return [each.table for each in self.assessment.tables if each.is_absent]

    @property
    def idle_tables(self) -> int:
        """How many tables need nothing."""
        worked = {action.table for action in self.plan.chosen} | {left.table for left in self.plan.skipped}
        worked |= {*self.errors, *self.absent}
        return sum(each.table not in worked for each in self.assessment.tables)


def planned(config: LakeConfig, dag: str, tables: Sequence[str] = ()) -> Planned:
    """Look at the tables, and choose as the DAG's tasks ``assess`` and ``plan`` do. Nothing is done.

    :param dag: one of :data:`DAGS`.
    :param tables: names and patterns of those that are to be planned for; empty is all of them.
    :raises InputError: governance works on none of these.
    """
    found = DAGS[dag](config)
    assess, choose = found.get_task("assess"), found.get_task("plan")
    assert isinstance(assess, AssessTablesOperator) and isinstance(choose, PlanOperator)
    assessment = _narrowed(assess.assessed(), tables)
    return Planned(found.dag_id, assessment, choose.chosen(assessment))


def _narrowed(found: Assessment, tables: Sequence[str]) -> Assessment:
    """The part of an assessment that is about some tables and what stands beside them."""
    if not tables:
        return found
    named = {*matching(tables, [each.table for each in found.tables])}
    kept = {each.table for each in found.tables if {each.table, each.beside} & named}
    if not kept:
        raise InputError(f"Governance works on none of {', '.join(tables)}.", hint="See tables of the configuration.")
    return replace(
        found,
        tables=tuple(each for each in found.tables if each.table in kept),
        actions=tuple(each for each in found.actions if each.table in kept),
        skipped=tuple(each for each in found.skipped if each.table in kept),
    )
