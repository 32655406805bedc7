"""Who may see which lake and which of its tables: whoever may read a DAG of the configuration that governs them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagDetails
from airflow.models.dag import DagModel
from airflow.utils.session import create_session
from sqlalchemy import select

from airflow_provider_lakecdc.page.lakes import Lake


def seen_by(user: BaseUser, lakes: Iterable[Lake]) -> tuple[Lake, ...]:
    """The lakes that somebody may see; those of a shared catalog without the tables that only others govern.

    A lake without a configuration has no DAGs of its own, and is seen by all who may see the page.
    """
    known = list(lakes)
    teams = _teams([dag for lake in known for dag in lake.dags])
    seen = [lake for lake in known if not lake.dags or _may_read_any(user, lake.dags, teams)]
    hidden = [lake for lake in known if lake not in seen]
    return tuple(
        replace(lake, hidden=tuple(each.config for each in hidden if each.config and each.conn_id == lake.conn_id))
        for lake in seen
    )


def _teams(dags: list[str]) -> dict[str, str | None]:
    """The teams of those of the DAGs that Airflow knows."""
    with create_session(scoped=False) as session:
        there = session.scalars(select(DagModel.dag_id).where(DagModel.dag_id.in_(dags))).all()
        return {**dict.fromkeys(there), **DagModel.get_dag_id_to_team_name_mapping(dags, session=session)}


def _may_read_any(user: BaseUser, dags: list[str], teams: Mapping[str, str | None]) -> bool:
    # a DAG that is not deployed belongs to no team, so that it would open what the others keep
    deployed = [dag for dag in dags if dag in teams] or dags
    manager = get_auth_manager()
    return any(
        # as Airflow's own API asks for a DAG
        manager.is_authorized_dag(method="GET", details=DagDetails(id=dag, team_name=teams.get(dag)), user=user)
        for dag in deployed
    )
