"""What of a table's writes its consumers have been told: the newest event of its asset is the memory."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

from airflow_provider_lakecdc.lake.tables import branch_snapshots, open_table, snapshot_facts
from lakecdc.metadata.last_write import LastWrite, last_write

if TYPE_CHECKING:
    from airflow.sdk import Asset

    from airflow_provider_lakecdc.hooks.catalog import CatalogConnection

#: events that others have raised, such as by hand on the web page, may stand before ours
_LOOKED_AT = 50


def last_announced(asset: Asset) -> str | None:
    """Snapshot that the newest event of a table's asset names; None if there is no such event.

    To be called inside a task.
    """
    # a task's ``inlet_events`` would need every table among its inlets, which is known only when it runs
    from airflow.sdk.execution_time.context import InletEventsAccessor

    events = InletEventsAccessor(asset_name=asset.name, asset_uri=asset.uri).ascending(False).limit(_LOOKED_AT)
    named = (event.extra.get("snapshot_after") for event in events if event.extra)
    return next((str(snapshot) for snapshot in named if snapshot), None)


def unannounced_write(catalog: CatalogConnection, table: str, announced: str | None) -> LastWrite | None:
    """The newest write since a snapshot.

    A snapshot that is gone, because it has expired or was rolled back, counts as one before all others.

    :param announced: the snapshot that was announced last.
    :return: None if there is none, or no such table.
    """
    with open_table(catalog, table) as found:
        if found is None:
            return None
        since = takewhile(lambda snapshot: str(snapshot.snapshot_id) != announced, branch_snapshots(found))
        return last_write(map(snapshot_facts, since), found.properties)
