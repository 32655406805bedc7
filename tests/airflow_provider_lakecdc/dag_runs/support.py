"""Runs of the provider's own DAGs inside Airflow, with a stand-in for spark-submit."""

from __future__ import annotations

from typing import Any

from tests.airflow_provider_lakecdc import home

FIVE, SIX = "2026-01-01T05:00:00+00:00", "2026-01-01T06:00:00+00:00"


def dag_file(name: str) -> str:
    # those of dags/ import these, and a module is imported once per process, whatever the configuration is by then
    return (home.REPOSITORY / "airflow_provider_lakecdc" / "example_dags" / f"{name}.py").read_text()


def states(run: Any) -> dict[str, list[str]]:
    """States of the run's task instances by task, in the order of their map indexes."""
    found: dict[str, list[str]] = {}
    for ti in sorted(run.get_task_instances(), key=lambda ti: (ti.task_id, ti.map_index)):
        found.setdefault(ti.task_id, []).append(str(ti.state))
    return found


def asset_events(run_id: str) -> dict[str, dict[str, Any]]:
    """Extras by URI of the asset events that a run has raised."""
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session

    with create_session() as session:
        events = session.query(AssetEvent).filter(AssetEvent.source_run_id == run_id).all()
        return {event.asset.uri: event.extra for event in events}


def xcoms(run_id: str) -> dict[str, list[Any]]:
    """A run's XCom values by key, in the order of their map indexes."""
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session

    found: dict[str, list[Any]] = {}
    with create_session() as session:
        rows = session.query(XComModel).filter(XComModel.run_id == run_id).order_by(XComModel.map_index).all()
        for row in rows:
            found.setdefault(row.key, []).append(row.value)
    return found
