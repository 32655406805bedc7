"""The trigger of delete debt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
from airflow_provider_lakecdc.lake.delete_debt import debt_of, removable_debt
from airflow_provider_lakecdc.lake.tables import MAIN, open_branch
from airflow_provider_lakecdc.triggers.polling import PollingTrigger, Side, Until, check_limit
from lakecdc.metadata.debt import DebtLimits, DeleteDebt


@dataclass(kw_only=True, eq=False, repr=False)
class DeleteDebtTrigger(PollingTrigger):
    """Fire when the delete debt of tables is above its limits, or below, or cannot be read.

    :param tables: ``namespace.name`` of each table.
    :param limits: fields of :class:`lakecdc.metadata.debt.DebtLimits`.
    :param until: ``above``: some table has a count above its limit, without the deletes that no run can convert;
        ``below``: no table has.
    :param branch: the branch to read.
    """

    event_key: ClassVar[str] = "debt"
    goal: ClassVar[str] = "delete debt {until} {limits}"

    tables: Sequence[str]
    limits: Mapping[str, int | None]
    until: Side = "above"
    branch: str = MAIN

    def check(self, catalog: CatalogConnection) -> dict[str, dict[str, int]] | None:
        limits = DebtLimits(**self.limits)

        def read(table: str) -> DeleteDebt | None:
            with open_branch(catalog, table, self.branch) as loaded:
                debt = debt_of(loaded, self.branch) if loaded is not None else None
                if self.until == "above" and loaded is not None and debt is not None and debt.above(limits):
                    return removable_debt(loaded, self.branch, debt)
                return debt

        wanted: Until = "some" if self.until == "above" else "none"
        debts = check_limit(self.tables, read, lambda debt: bool(debt.above(limits)), wanted, "Delete debt")
        return None if debts is None else {table: debt.counts() for table, debt in debts.items()}
