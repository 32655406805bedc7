"""Visibility of lakes and tables: users see those whose configuration has a DAG that they may read."""

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


def visible_lakes(user: BaseUser, lakes: Iterable[Lake]) -> tuple[Lake, ...]:
    """Return the lakes that a user may see, with the hidden configurations of shared catalogs.

    Lakes without a configuration have no DAGs, and all users of the page see them.
    """
    known = list(lakes)
    teams = _teams([dag for lake in known for dag in lake.dags])
    visible = [lake for lake in known if not lake.dags or _may_read_any(user, lake.dags, teams)]
    hidden = [lake for lake in known if lake not in visible]
    return tuple(
        replace(lake, hidden=tuple(each.config for each in hidden if each.config and each.conn_id == lake.conn_id))
        for lake in visible
    )


def _teams(dags: list[str]) -> dict[str, str | None]:
    """Return the teams of the DAGs that are deployed."""
    with create_session(scoped=False) as session:
        deployed = session.scalars(select(DagModel.dag_id).where(DagModel.dag_id.in_(dags))).all()
        return {**dict.fromkeys(deployed), **DagModel.get_dag_id_to_team_name_mapping(dags, session=session)}


def _may_read_any(user: BaseUser, dags: list[str], teams: Mapping[str, str | None]) -> bool:
    # a DAG that is not deployed has no team and would be readable by all
    deployed = [dag for dag in dags if dag in teams] or dags
    manager = get_auth_manager()
    return any(
        # as Airflow's own API checks a DAG
        manager.is_authorized_dag(method="GET", details=DagDetails(id=dag, team_name=teams.get(dag)), user=user)
        for dag in deployed
    )
