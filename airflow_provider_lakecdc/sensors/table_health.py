"""The sensor of table health."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_lakecdc.lake.tables import MAIN
from airflow_provider_lakecdc.sensors.polling import LimitSensor
from airflow_provider_lakecdc.triggers.polling import Side
from airflow_provider_lakecdc.triggers.table_health import TableHealthTrigger


class TableHealthSensor(LimitSensor):
    """Wait until the health of tables is below a score, or above.

    ``until="below"`` waits for a table with a lower score, to run maintenance when needed instead of by the clock; the
    return value is a dict of the scores of these tables, so that ``tables=sensor.output`` passes them to an operator.
    ``until="above"`` waits until no table has a lower score, before heavy readers. Tables that do not exist yet keep it
    waiting either way. Each check reads all manifests of the tables, but no data files.

    :param tables: ``namespace.name`` of each table. (templated)
    :param score: 0–100, see ``airflow lakecdc health``. (templated)
    :param until: ``below`` or ``above``. (templated)
    :param branch: the branch to read. (templated)
    :param kwargs: see :class:`airflow_provider_lakecdc.sensors.polling.PollingSensor`.
    """

    trigger_class = TableHealthTrigger
    template_fields: Sequence[str] = (*LimitSensor.template_fields, "score", "branch")

    def __init__(
        self,
        *,
        tables: str | Sequence[str],
        score: float | str = 80.0,
        until: Side | str = "below",
        branch: str = MAIN,
        **kwargs: Any,
    ) -> None:
        super().__init__(tables=tables, until=until, **kwargs)
        self.score = score
        self.branch = branch

    def parsed(self) -> dict[str, Any]:
        """Return the tables and the score."""
        tables = super().parsed()
        try:
            limit = float(self.score)
        except ValueError as error:
            raise AirflowFailException(f"score {self.score!r} is not a number.") from error
        if not 0 <= limit <= 100:
            raise AirflowFailException(f"Expected a score between 0 and 100, got {limit:g}.")
        return {**tables, "score": limit}
