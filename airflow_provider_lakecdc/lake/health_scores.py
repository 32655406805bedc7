"""Scores of tables' health, and which side of a limit they are on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow_provider_lakecdc.lake.health import health_of
from airflow_provider_lakecdc.lake.limits import look_at
from airflow_provider_lakecdc.lake.tables import MAIN, Side, open_branch

if TYPE_CHECKING:
    from airflow_provider_lakecdc.hooks.catalog import CatalogConnection

#: by table
Scores = dict[str, float]


def look(
    catalog: CatalogConnection, tables: Sequence[str], limit: float, until: Side, branch: str = MAIN
) -> Scores | None:
    """Look at all tables once; see :func:`airflow_provider_lakecdc.lake.limits.look_at`.

    :param tables: ``namespace.name`` of each; one that does not exist, or has no snapshot, is neither above nor below.
    :param limit: a score.
    :param until: ``below``: some table has a lower score; ``above``: no table has.
    :raises LakecdcJobError: if it is left to tables that cannot be read.
    """
    found = look_at(
        tables,
        lambda table: _score(catalog, table, branch),
        lambda score: score < limit,
        "some" if until == "below" else "none",
        "Health",
    )
    return None if found is None else {table: round(score, 1) for table, score in found.items()}


def _score(catalog: CatalogConnection, table: str, branch: str) -> float | None:
    with open_branch(catalog, table, branch) as found:
        health = health_of(found, branch) if found is not None else None
    return health.score if health else None
