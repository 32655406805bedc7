"""Waiting until delete files have become many, or few again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow.sdk import PokeReturnValue
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_lakecdc.hooks.catalog import get_catalog
from airflow_provider_lakecdc.lake.delete_debt import look
from airflow_provider_lakecdc.lake.tables import MAIN, Side
from airflow_provider_lakecdc.sensors.polling import PollingSensor, side, tables_of
from airflow_provider_lakecdc.triggers.delete_debt import DeleteDebtTrigger
from lakecdc.contract.errors import SpecError
from lakecdc.metadata.debt import DebtLimits

if TYPE_CHECKING:
    from airflow.sdk import Context


class DeleteDebtSensor(PollingSensor):
    """Succeeds once tables' delete debt is above its limits, or is not.

    ``until="above"`` waits for a table with a count above its limit, to run maintenance when it is due instead of by
    the clock. ``until="below"`` waits until no table has one, before a reader that equality deletes make dear, or that
    cannot read them at all. A table that does not exist yet is waited for either way. Equality deletes that
    ``rewrite_delete_files`` has to leave as they are count for ``below`` only.

    Only metadata is read, usually one file per table. The return value is a dict of counts by table (for ``above``
    only of those that are above), so that ``tables=sensor.output`` names them to an operator.

    :param tables: ``namespace.name`` of each table. (templated)
    :param until: ``above`` or ``below``. (templated)
    :param max_equality_delete_files: highest number of equality-delete files that is put up with. (templated)
    :param max_equality_deletes: highest number of rows in them. (templated)
    :param max_position_delete_files: highest number of position-delete files and deletion vectors. (templated)
    :param max_position_deletes: highest number of rows in them. (templated)
    :param branch: branch to look at. (templated)
    :param catalog_conn_id: connection of type ``iceberg``; default: ``[lakecdc] catalog_conn_id``. (templated)
    :param deferrable: wait in the triggerer instead of a worker; default: ``[operators] default_deferrable``.
    :param kwargs: arguments of ``BaseSensorOperator``, such as ``poke_interval`` and ``timeout`` in seconds.
    """

    template_fields: Sequence[str] = (
        "tables",
        "until",
        "max_equality_delete_files",
        "max_equality_deletes",
        "max_position_delete_files",
        "max_position_deletes",
        "branch",
        "catalog_conn_id",
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
        super().__init__(**kwargs)
        self.tables = tables
        self.until = until
        self.max_equality_delete_files = max_equality_delete_files
        self.max_equality_deletes = max_equality_deletes
        self.max_position_delete_files = max_position_delete_files
        self.max_position_deletes = max_position_deletes
        self.branch = branch

    def poke(self, context: Context) -> PokeReturnValue:
        """Look at the tables once."""
        limits, until, tables = self._limits(), side(self.until), tables_of(self.tables)
        found = look(get_catalog(self.catalog_conn_id), tables, self.branch, limits, until)
        self.log.info("Waiting for delete debt %s %s; found: %s", until, _given(limits), found or "not yet")
        return PokeReturnValue(found is not None, found)

    def trigger(self) -> DeleteDebtTrigger:
        """What to wait with."""
        return DeleteDebtTrigger(
            tables=tables_of(self.tables),
            catalog_conn_id=self.catalog_conn_id,
            limits=_given(self._limits()),
            until=side(self.until),
            branch=self.branch,
            poll_interval=self.poke_interval,
        )

    def _limits(self) -> DebtLimits:
        try:
            return DebtLimits(
                _number(self.max_equality_delete_files),
                _number(self.max_equality_deletes),
                _number(self.max_position_delete_files),
                _number(self.max_position_deletes),
            )
        except (SpecError, ValueError) as error:
            raise AirflowFailException(str(error)) from error


def _given(limits: DebtLimits) -> dict[str, int]:
    return {name: value for name, value in asdict(limits).items() if value is not None}


def _number(value: int | str | None) -> int | None:
    # a rendered template is text, and an empty one is no limit
    return None if value is None or str(value).strip() in ("", "None") else int(value)
