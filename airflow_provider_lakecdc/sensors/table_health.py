"""Waiting until tables hurt, or are healthy again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import PokeReturnValue
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_lakecdc.hooks.catalog import get_catalog
from airflow_provider_lakecdc.lake.health_scores import look
from airflow_provider_lakecdc.lake.tables import MAIN, Side
from airflow_provider_lakecdc.sensors.polling import PollingSensor, side, tables_of
from airflow_provider_lakecdc.triggers.table_health import TableHealthTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context


class TableHealthSensor(PollingSensor):
    """Succeeds once the health of tables is below a score, or above it.

    ``until="below"`` waits for a table whose score is lower, to run maintenance when it is due instead of by the clock;
    the return value is a dict of the scores of these tables, so that ``tables=sensor.output`` names them to an
    operator. ``until="above"`` waits until no table has a lower score, before heavy readers. A table that does not
    exist yet is waited for either way. All manifests of the tables are read in each look, no file of rows.

    :param tables: ``namespace.name`` of each table. (templated)
    :param score: 0–100, see ``airflow lakecdc health``. (templated)
    :param until: ``below`` or ``above``. (templated)
    :param branch: branch to look at. (templated)
    :param catalog_conn_id: connection of type ``iceberg``; default: ``[lakecdc] catalog_conn_id``. (templated)
    :param deferrable: wait in the triggerer instead of a worker; default: ``[operators] default_deferrable``.
    :param kwargs: arguments of ``BaseSensorOperator``, such as ``poke_interval`` and ``timeout`` in seconds.
    """

    template_fields: Sequence[str] = ("tables", "score", "until", "branch", "catalog_conn_id")

    def __init__(
        self,
        *,
        tables: str | Sequence[str],
        score: float | str = 80.0,
        until: Side | str = "below",
        branch: str = MAIN,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.tables = tables
        self.score = score
        self.until = until
        self.branch = branch

    def poke(self, context: Context) -> PokeReturnValue:
        """Look at the tables once."""
        limit, until = self._limit(), side(self.until)
        found = look(get_catalog(self.catalog_conn_id), tables_of(self.tables), limit, until, self.branch)
        self.log.info("Waiting for scores %s %g; found: %s", until, limit, found or "not yet")
        return PokeReturnValue(found is not None, found)

    def trigger(self) -> TableHealthTrigger:
        """What to wait with."""
        return TableHealthTrigger(
            tables=tables_of(self.tables),
            score=self._limit(),
            catalog_conn_id=self.catalog_conn_id,
            until=side(self.until),
            branch=self.branch,
            poll_interval=self.poke_interval,
        )

    def _limit(self) -> float:
        try:
            limit = float(self.score)
        except ValueError as error:
            raise AirflowFailException(f"score is {self.score!r}, which is no number.") from error
        if not 0 <= limit <= 100:
            raise AirflowFailException(f"score is {limit:g}; it must be between 0 and 100.")
        return limit
