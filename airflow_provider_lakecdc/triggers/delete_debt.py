"""The trigger of delete debt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
from airflow_provider_lakecdc.lake.delete_debt import Debts, check_delete_debt
from airflow_provider_lakecdc.lake.tables import MAIN, Side
from airflow_provider_lakecdc.triggers.polling import PollingTrigger
from lakecdc.metadata.debt import DebtLimits


class DeleteDebtTrigger(PollingTrigger):
    """Fire when tables' delete debt is on one side of its limits, or cannot be read.

    :param tables: ``namespace.name`` of each table.
    :param catalog_conn_id: connection of type ``iceberg``.
    :param limits: fields of :class:`lakecdc.metadata.debt.DebtLimits`.
    :param until: ``above`` or ``below``, see :func:`airflow_provider_lakecdc.lake.delete_debt.check_delete_debt`.
    :param branch: the branch to read.
    :param poll_interval: seconds between two checks.
    """

    event_key: ClassVar[str] = "debt"

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

    def check(self, catalog: CatalogConnection) -> Debts | None:
        """Return the debts if the wait is over."""
        return check_delete_debt(catalog, self.tables, self.branch, DebtLimits(**self.limits), self.until)
