"""The current state of one table, from its metadata."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecdc.audit import Trend
from airflow_provider_lakecdc.lake.assess_table import OpenTable
from airflow_provider_lakecdc.lake.status import read_status
from airflow_provider_lakecdc.lake.tables import open_table, summary_of
from airflow_provider_lakecdc.page.lakes import Lake, no_such_table
from airflow_provider_lakecdc.page.lookups import MetadataCache
from airflow_provider_lakecdc.page.tables import trends
from lakecdc.metadata import names
from lakecdc.metadata.health import MOST_FILES_OF_A_WORKER
from lakecdc.metadata.last_write import source_lag_seconds

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from airflow_provider_lakecdc.hooks.catalog import CatalogConnection

_SNAPSHOTS = 20


@dataclass(frozen=True)
class SnapshotRow:
    """A row of the list of snapshots.

    :param id: as text, since JavaScript numbers lack 64-bit precision.
    :param operation: append, overwrite, delete or replace.
    :param job: the lakecdc job that committed it.
    :param refs: its tags and branches.
    :param summary: its Iceberg summary.
    """

    id: str
    made_at: datetime
    operation: str
    job: str | None
    refs: tuple[str, ...]
    summary: dict[str, str]


def table_of(lake: Lake, table: str, heads: MetadataCache) -> dict[str, Any]:
    """Return the template's values of a table's files, deletes and snapshots.

    :raises InputError: the table does not exist or is hidden.
    """
    lake.check_shown(table)
    catalog = lake.catalog
    values = heads.read(catalog, table, (lake.conn_id, "status"), lambda: _read(catalog, table))
    written = values["status"]["last_write"]
    # the lag grows without commits
    lag = source_lag_seconds(written["source_time"], datetime.now(UTC)) if written else None
    trend: Trend | None = trends(lake, heads).get(table)
    return {"name": table, "trend": trend, "lag": lag, **values}


def _read(catalog: CatalogConnection, table: str) -> dict[str, Any]:
    with open_table(catalog, table) as opened:
        # catalogs that ignore case would bypass the visibility check
        if opened is None or ".".join(opened.name()) != table:
            raise no_such_table(table)
        # the same limit as for workers
        is_small = OpenTable(opened).is_small
        snapshots = _snapshots(opened)
        kept = len(opened.metadata.snapshots)
    return {
        "status": read_status(catalog, table, health=is_small),
        "is_small": is_small,
        "most_files": MOST_FILES_OF_A_WORKER,
        "snapshots": snapshots,
        "kept": kept,
    }


def _snapshots(table: Table) -> list[SnapshotRow]:
    refs: dict[int, list[str]] = defaultdict(list)
    for name, ref in table.metadata.refs.items():
        refs[ref.snapshot_id].append(name)
    newest = sorted(table.metadata.snapshots, key=lambda each: each.timestamp_ms, reverse=True)[:_SNAPSHOTS]
    return [
        SnapshotRow(
            id=str(each.snapshot_id),
            made_at=datetime.fromtimestamp(each.timestamp_ms / 1000, UTC),
            operation=each.summary.operation.value if each.summary else "",
            job=summary_of(each).get(names.JOB),
            refs=tuple(sorted(refs[each.snapshot_id])),
            summary=dict(summary_of(each)),
        )
        for each in newest
    ]
