"""The trigger of table health."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
from airflow_provider_lakecdc.lake.health_scores import Scores, check_scores
from airflow_provider_lakecdc.lake.tables import MAIN, Side
from airflow_provider_lakecdc.triggers.polling import PollingTrigger


class TableHealthTrigger(PollingTrigger):
    """Fire when tables' scores are on one side of a limit, or cannot be read.

    :param tables: ``namespace.name`` of each table.
    :param score: 0–100.
    :param catalog_conn_id: connection of type ``iceberg``.
    :param until: ``below`` or ``above``, see :func:`airflow_provider_lakecdc.lake.health_scores.check_scores`.
    :param branch: the branch to read.
    :param poll_interval: seconds between two checks.
    """

    event_key: ClassVar[str] = "health"

    def __init__(
        self,
        *,
        tables: Sequence[str],
        score: float,
        catalog_conn_id: str,
        until: Side = "below",
        branch: str = MAIN,
        poll_interval: float = 300.0,
    ) -> None:
        self.tables, self.score, self.until, self.branch = list(tables), score, until, branch
        super().__init__(catalog_conn_id, poll_interval, tables=self.tables, score=score, until=until, branch=branch)

    def check(self, catalog: CatalogConnection) -> Scores | None:
        """Return the scores if the wait is over."""
        return check_scores(catalog, self.tables, self.score, self.until, self.branch)
