"""Scores of tables' health, and which side of a limit they are on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow_provider_lakecdc.health import health_of
from airflow_provider_lakecdc.tables import MAIN, Side, open_table

if TYPE_CHECKING:
    from airflow_provider_lakecdc.hooks.catalog import CatalogConnection

#: by table
Scores = dict[str, float]


def look(
    catalog: CatalogConnection, tables: Sequence[str], limit: float, until: Side, branch: str = MAIN
) -> Scores | None:
    """Look at all tables once.

    :param tables: ``namespace.name`` of each; one that does not exist, or has no snapshot, is neither above nor below.
    :param limit: a score.
    :param until: ``below``: some table has a lower score; ``above``: no table has.
    :return: for ``below`` the scores of the tables that are below, for ``above`` those of all tables; None while there
        is more to wait for.
    """
    scores = {name: _score(catalog, name, branch) for name in tables}
    below = {name: score for name, score in scores.items() if score is not None and score < limit}
    if until == "below":
        return below or None
    if below or None in scores.values():
        return None
    return {name: score for name, score in scores.items() if score is not None}


def _score(catalog: CatalogConnection, table: str, branch: str) -> float | None:
    with open_table(catalog, table) as found:
        if found is None or (branch != MAIN and branch not in found.metadata.refs):
            return None
        health = health_of(found, branch)
    return round(health.score, 1) if health else None
