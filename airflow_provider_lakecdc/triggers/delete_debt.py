"""Waiting for tables' delete debt in the triggerer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
from airflow_provider_lakecdc.lake.delete_debt import Debts, look
from airflow_provider_lakecdc.lake.tables import MAIN, Side
from airflow_provider_lakecdc.triggers.polling import PollingTrigger
from lakecdc.metadata.debt import DebtLimits


class DeleteDebtTrigger(PollingTrigger):
    """Fires when tables' delete debt is on a side of its limits, or when it cannot be read.

    :param tables: ``namespace.name`` of each table.
    :param catalog_conn_id: connection of type ``iceberg``.
    :param limits: fields of :class:`lakecdc.metadata.debt.DebtLimits`.
    :param until: ``above`` or ``below``, see :func:`airflow_provider_lakecdc.lake.delete_debt.look`.
    :param branch: branch to look at.
    :param poll_interval: seconds between two looks.
    """

    found_key: ClassVar[str] = "debt"

    def __init__(
        self,
        *,
        tables: Sequence[str],
        catalog_conn_id: str,
        limits: Mapping[str, int | None],
        until: Side = "above",
        branch: str = MAIN,
        poll_interval: float = 60.0,
    ) -> None:
        self.tables, self.limits, self.until, self.branch = list(tables), dict(limits), until, branch
        super().__init__(
            catalog_conn_id, poll_interval, tables=self.tables, limits=self.limits, until=until, branch=branch
        )

    def look(self, catalog: CatalogConnection) -> Debts | None:
        """The debts that were waited for."""
        return look(catalog, self.tables, self.branch, DebtLimits(**self.limits), self.until)
