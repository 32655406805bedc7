"""The sensor of delete debt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
from airflow_provider_lakecdc.lake.delete_debt import debt_of, removable_debt
from airflow_provider_lakecdc.lake.tables import MAIN, read_tables
from airflow_provider_lakecdc.sensors.polling import LimitSensor, Side, check_limit
from lakecdc.contract.errors import SpecError
from lakecdc.metadata.debt import DebtLimits, DeleteDebt

if TYPE_CHECKING:
    from pyiceberg.table import Table


class DeleteDebtSensor(LimitSensor):
    """Wait until the delete debt of tables is above its limits, or below.

    ``until="above"`` waits for a table with a count above its limit, to run maintenance when needed instead of by the
    clock. ``until="below"`` waits until no table is above, before readers that are slow with equality deletes or cannot
    read them. Tables that do not exist yet keep it waiting either way. Equality deletes that ``rewrite_delete_files``
    must skip count for ``below`` only.

    Only metadata is read, usually one file per table. The return value is a dict of counts by table (with ``above``, of
    the tables above a limit), so that ``tables=sensor.output`` passes these tables to an operator.

    :param tables: ``namespace.name`` of each table. (templated)
    :param until: ``above`` or ``below``. (templated)
    :param max_equality_delete_files: limit of equality-delete files. (templated)
    :param max_equality_deletes: limit of rows in them. (templated)
    :param max_position_delete_files: limit of position-delete files and deletion vectors. (templated)
    :param max_position_deletes: limit of rows in them. (templated)
    :param branch: the branch to read. (templated)
    """

    goal: ClassVar[str] = "delete debt {until} {limits}"
    template_fields: Sequence[str] = (
        *LimitSensor.template_fields,
        *(each.name for each in fields(DebtLimits)),
        "branch",
    )

    def __init__(
        self,
        *,
        tables: str | Sequence[str],
        until: Side | str = "above",
        max_equality_delete_files: int | str | None = None,
        max_equality_deletes: int | str | None = None,
        max_position_delete_files: int | str | None = None,
        max_position_deletes: int | str | None = None,
        branch: str = MAIN,
        **kwargs: Any,
    ) -> None:
        super().__init__(tables=tables, until=until, **kwargs)
        self.max_equality_delete_files = max_equality_delete_files
        self.max_equality_deletes = max_equality_deletes
        self.max_position_delete_files = max_position_delete_files
        self.max_position_deletes = max_position_deletes
        self.branch = branch

    @staticmethod
    def check(
        catalog: CatalogConnection,
        *,
        tables: Sequence[str],
        limits: Mapping[str, int],
        until: Side = "above",
        branch: str = MAIN,
    ) -> dict[str, dict[str, int]] | None:
        """Return the counts by table if the wait is over."""
        highest = DebtLimits(**limits)

        def read(_: str, table: Table | None) -> DeleteDebt | None:
            # main need not have a snapshot
            if table is None or branch not in {MAIN, *table.metadata.refs}:
                return None
            debt = debt_of(table, branch)
            return removable_debt(table, branch, debt) if until == "above" and debt.above(highest) else debt

        measured = read_tables(catalog, tables, read, lambda _, error: error)
        debts = check_limit(measured, lambda debt: bool(debt.above(highest)), "Delete debt", some=until == "above")
        return None if debts is None else {table: debt.counts() for table, debt in debts.items()}

    def check_arguments(self) -> dict[str, Any]:
        """Return tables and branch, and the limits that are given."""
        arguments = {**super().check_arguments(), "branch": self.branch}
        try:
            limits = DebtLimits(*(_number(getattr(self, each.name)) for each in fields(DebtLimits)))
        except (SpecError, ValueError) as error:
            raise AirflowFailException(str(error)) from error
        return {**arguments, "limits": {name: value for name, value in asdict(limits).items() if value is not None}}


def _number(value: int | str | None) -> int | None:
    # a rendered template is text; an empty one means no limit
    return None if value is None or str(value).strip() in ("", "None") else int(value)
