"""Health scores of tables compared with a limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow_provider_lakecdc.lake.health import health_of
from airflow_provider_lakecdc.lake.limits import check_limit
from airflow_provider_lakecdc.lake.tables import MAIN, Side, open_branch

if TYPE_CHECKING:
    from airflow_provider_lakecdc.hooks.catalog import CatalogConnection

#: by table
Scores = dict[str, float]


def check_scores(
    catalog: CatalogConnection, tables: Sequence[str], limit: float, until: Side, branch: str = MAIN
) -> Scores | None:
    """Check all tables once, see :func:`airflow_provider_lakecdc.lake.limits.check_limit`.

    :param tables: ``namespace.name`` of each; tables that do not exist or have no snapshot are neither above nor below.
    :param limit: the score.
    :param until: ``below``: some table has a lower score; ``above``: no table has.
    :raises LakecdcJobError: the result depends on tables that cannot be read.
    """
    scores = check_limit(
        tables,
        lambda table: _score(catalog, table, branch),
        lambda score: score < limit,
        "some" if until == "below" else "none",
        "Health",
    )
    return None if scores is None else {table: round(score, 1) for table, score in scores.items()}


def _score(catalog: CatalogConnection, table: str, branch: str) -> float | None:
    with open_branch(catalog, table, branch) as loaded:
        health = health_of(loaded, branch) if loaded is not None else None
    return health.score if health else None
