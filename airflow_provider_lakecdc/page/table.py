"""One table as it is now, from its metadata."""

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
from airflow_provider_lakecdc.page.lookups import Heads
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
    """A snapshot of the list.

    :param id: as text, because JavaScript cannot hold 64 bits.
    :param operation: append, overwrite, delete or replace.
    :param job: of ours that has made it.
    :param refs: tags and branches that are on it.
    :param summary: as Iceberg has it.
    """

    id: str
    made_at: datetime
    operation: str
    job: str | None
    refs: tuple[str, ...]
    summary: dict[str, str]


def table_of(lake: Lake, table: str, heads: Heads) -> dict[str, Any]:
    """What the page of a table tells of its files, deletes and snapshots.

    :raises InputError: there is no such table.
    """
    lake.check_shown(table)
    catalog = lake.catalog
    found = heads.read(catalog, table, (lake.conn_id, "status"), lambda: _read(catalog, table))
    written = found["status"]["last_write"]
    # grows while nobody commits
    lag = source_lag_seconds(written["source_time"], datetime.now(UTC)) if written else None
    trend: Trend | None = trends(lake, heads).get(table)
    return {"name": table, "trend": trend, "lag": lag, **found}


def _read(catalog: CatalogConnection, table: str) -> dict[str, Any]:
    with open_table(catalog, table) as opened:
        # a catalog that finds it by another spelling would pass what a name is compared with
        if opened is None or ".".join(opened.name()) != table:
            raise no_such_table(table)
        # what a worker would not read, the API server does not either
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
