"""The trigger of table health."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
from airflow_provider_lakecdc.lake.assess_table import health_of
from airflow_provider_lakecdc.lake.tables import MAIN, open_branch
from airflow_provider_lakecdc.triggers.polling import PollingTrigger, Side, Until, check_limit


@dataclass(kw_only=True, eq=False, repr=False)
class TableHealthTrigger(PollingTrigger):
    """Fire when tables' scores are on one side of a limit, or cannot be read.

    :param tables: ``namespace.name`` of each table; those without a snapshot are on neither side.
    :param score: 0–100.
    :param until: ``below``: some table has a lower score; ``above``: no table has.
    :param branch: the branch to read.
    """

    event_key: ClassVar[str] = "health"
    goal: ClassVar[str] = "scores {until} {score:g}"

    tables: Sequence[str]
    score: float
    until: Side = "below"
    branch: str = MAIN
    poll_interval: float = 300.0

    def check(self, catalog: CatalogConnection) -> dict[str, float] | None:
        def read(table: str) -> float | None:
            with open_branch(catalog, table, self.branch) as loaded:
                health = health_of(loaded, self.branch) if loaded is not None else None
                return health.score if health else None

        wanted: Until = "some" if self.until == "below" else "none"
        scores = check_limit(self.tables, read, lambda score: score < self.score, wanted, "Health")
        return None if scores is None else {table: round(score, 1) for table, score in scores.items()}
