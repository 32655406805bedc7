"""Table health as the Airflow side measures it: all manifests of a branch's head through pyiceberg, no file of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_lakecdc.live_files import live_files
from airflow_provider_lakecdc.tables import MAIN, branch_snapshots, summary_of
from lakecdc.metadata import totals
from lakecdc.metadata.file_sizes import target_file_bytes
from lakecdc.metadata.health import TableHealth, measured

if TYPE_CHECKING:
    from pyiceberg.table import Table


def health_of(table: Table, branch: str = MAIN) -> TableHealth | None:
    """Measure a branch's head.

    :return: None if the branch has no snapshot.
    """
    head = next(branch_snapshots(table, branch), None)
    if head is None:
        return None
    manifests = head.manifests(table.io)
    return measured(
        live_files(table, manifests),
        target_file_bytes=target_file_bytes(table.properties, totals.from_summary(summary_of(head)).bytes),
        snapshots=len(table.metadata.snapshots),
        manifests=[manifest.manifest_length for manifest in manifests],
    )
