"""Waiting until a table holds everything its source had at a moment."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import PokeReturnValue
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_lakecdc.hooks.catalog import get_catalog
from airflow_provider_lakecdc.lake.watermark import parse_moment, read_watermark
from airflow_provider_lakecdc.sensors.polling import PollingSensor
from airflow_provider_lakecdc.triggers.watermark import IcebergWatermarkTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context


class IcebergWatermarkSensor(PollingSensor):
    """Succeeds once a table's ingested source time has reached a moment.

    A quiet source does not hang it: a run of the ingest job that found no changes moves the time on as well. A table
    that does not exist yet is waited for.

    :param table: ``namespace.name``. (templated)
    :param moment: ISO-8601; without a zone UTC. Default: the end of the run's data interval. (templated)
    :param catalog_conn_id: connection of type ``iceberg``; default: ``[lakecdc] catalog_conn_id``. (templated)
    :param deferrable: wait in the triggerer instead of a worker; default: ``[operators] default_deferrable``.
    :param kwargs: arguments of ``BaseSensorOperator``, such as ``poke_interval`` and ``timeout`` in seconds.
    """

    template_fields: Sequence[str] = ("table", "moment", "catalog_conn_id")

    def __init__(self, *, table: str, moment: str = "{{ data_interval_end }}", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.moment = moment

    def trigger(self) -> IcebergWatermarkTrigger:
        """What to wait with."""
        return IcebergWatermarkTrigger(
            table=self.table,
            catalog_conn_id=self.catalog_conn_id,
            moment=self._wanted().isoformat(),
            poll_interval=self.poke_interval,
        )

    def poke(self, context: Context) -> PokeReturnValue:
        """Look at the table once; the return value of the task is the time found, ISO-8601."""
        wanted = self._wanted()
        found = read_watermark(get_catalog(self.catalog_conn_id), self.table)
        self.log.info("%s has been fed up to %s, waiting for %s", self.table, found, wanted)
        reached = found is not None and found >= wanted
        return PokeReturnValue(reached, found.isoformat() if found and reached else None)

    def _wanted(self) -> datetime:
        try:
            return parse_moment(self.moment)
        except (TypeError, ValueError) as error:
            raise AirflowFailException(
                f"moment is {self.moment!r}, which is no ISO-8601 moment. Runs without a data interval "
                "(asset-triggered or partitioned) have to be given one; scheduled DAGs need a timetable with "
                "intervals, such as CronDataIntervalTimetable."
            ) from error
