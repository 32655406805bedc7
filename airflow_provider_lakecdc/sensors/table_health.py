"""The sensor of table health."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import PokeReturnValue
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_lakecdc.hooks.catalog import get_catalog
from airflow_provider_lakecdc.lake.health_scores import check_scores
from airflow_provider_lakecdc.lake.tables import MAIN, Side
from airflow_provider_lakecdc.sensors.polling import PollingSensor, side, tables_of
from airflow_provider_lakecdc.triggers.table_health import TableHealthTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context


class TableHealthSensor(PollingSensor):
    """Wait until the health of tables is below a score, or above.

    ``until="below"`` waits for a table with a lower score, to run maintenance when needed instead of by the clock; the
    return value is a dict of the scores of these tables, so that ``tables=sensor.output`` passes them to an operator.
    ``until="above"`` waits until no table has a lower score, before heavy readers. Tables that do not exist yet keep it
    waiting either way. Each check reads all manifests of the tables, but no data files.

    :param tables: ``namespace.name`` of each table. (templated)
    :param score: 0–100, see ``airflow lakecdc health``. (templated)
    :param until: ``below`` or ``above``. (templated)
    :param branch: the branch to read. (templated)
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
        """Check the tables once."""
        limit, until = self._limit(), side(self.until)
        scores = check_scores(get_catalog(self.catalog_conn_id), tables_of(self.tables), limit, until, self.branch)
        self.log.info("Waiting for scores %s %g; result: %s", until, limit, scores or "not yet")
        return PokeReturnValue(scores is not None, scores)

    def trigger(self) -> TableHealthTrigger:
        """Create the trigger."""
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
            raise AirflowFailException(f"score {self.score!r} is not a number.") from error
        if not 0 <= limit <= 100:
            raise AirflowFailException(f"Expected a score between 0 and 100, got {limit:g}.")
        return limit
