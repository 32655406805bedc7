"""Writes that were announced to a table's consumers, as recorded by the newest event of its asset."""

from __future__ import annotations

from itertools import takewhile

from airflow.sdk import Asset

from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
from airflow_provider_lakecdc.lake.tables import branch_snapshots, open_table, snapshot_facts
from lakecdc.metadata.last_write import LastWrite, last_write

#: events from elsewhere, such as the web page, may be newer than ours
_MOST_EVENTS = 50


def last_announced(asset: Asset) -> str | None:
    """Return the snapshot in the newest event of a table's asset, or None without such an event.

    Must run inside a task.
    """
    # a task's ``inlet_events`` needs the tables as inlets, and they are known only when it runs
    from airflow.sdk.execution_time.context import InletEventsAccessor

    events = InletEventsAccessor(asset_name=asset.name, asset_uri=asset.uri).ascending(False).limit(_MOST_EVENTS)
    named = (event.extra.get("snapshot_after") for event in events if event.extra)
    return next((str(snapshot) for snapshot in named if snapshot), None)


def unannounced_write(catalog: CatalogConnection, table: str, announced: str | None) -> LastWrite | None:
    """Return the newest write since a snapshot, or None.

    An expired or rolled back snapshot counts as older than all others.

    :param announced: the last announced snapshot.
    """
    with open_table(catalog, table) as loaded:
        if loaded is None:
            return None
        since = takewhile(lambda snapshot: str(snapshot.snapshot_id) != announced, branch_snapshots(loaded))
        return last_write(map(snapshot_facts, since), loaded.properties)
