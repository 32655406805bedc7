"""Run the provider's DAGs inside Airflow, with a fake spark-submit."""

from __future__ import annotations

from typing import Any

from tests.airflow_provider_lakecdc import home

FIVE, SIX = "2026-01-01T05:00:00+00:00", "2026-01-01T06:00:00+00:00"


def dag_file(name: str) -> str:
    # the files of dags/ import these, and a module is imported once per process, despite changes of the configuration
    return (home.REPOSITORY / "airflow_provider_lakecdc" / "example_dags" / f"{name}.py").read_text()


def states(run: Any) -> dict[str, list[str]]:
    """Return the states of the run's task instances by task, ordered by map index."""
    states_by_task: dict[str, list[str]] = {}
    for ti in sorted(run.get_task_instances(), key=lambda ti: (ti.task_id, ti.map_index)):
        states_by_task.setdefault(ti.task_id, []).append(str(ti.state))
    return states_by_task


def asset_events(run_id: str) -> dict[str, dict[str, Any]]:
    """Return the extras by URI of the asset events that a run has raised."""
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session

    with create_session() as session:
        events = session.query(AssetEvent).filter(AssetEvent.source_run_id == run_id).all()
        return {event.asset.uri: event.extra for event in events}


def xcoms(run_id: str) -> dict[str, list[Any]]:
    """Return a run's XCom values by key, ordered by map index."""
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session

    values_by_key: dict[str, list[Any]] = {}
    with create_session() as session:
        rows = session.query(XComModel).filter(XComModel.run_id == run_id).order_by(XComModel.map_index).all()
        for row in rows:
            values_by_key.setdefault(row.key, []).append(row.value)
    return values_by_key
