"""Table health, measured by the Airflow side from all manifests of a branch's head through pyiceberg."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_lakecdc.lake.assess_table import OpenTable
from airflow_provider_lakecdc.lake.tables import MAIN

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from lakecdc.metadata.health import TableHealth


def health_of(table: Table, branch: str = MAIN) -> TableHealth | None:
    """Measure the health of a branch's head.

    :return: None if the branch has no snapshot.
    """
    opened = OpenTable(table, branch)
    return opened.health if opened.head else None
