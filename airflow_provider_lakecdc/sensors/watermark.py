"""Waiting until a table holds everything its source had at a moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator, PokeReturnValue, conf
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_lakecdc import settings
from airflow_provider_lakecdc.exceptions import LakecdcJobError
from airflow_provider_lakecdc.hooks.catalog import get_catalog
from airflow_provider_lakecdc.triggers.watermark import IcebergWatermarkTrigger
from airflow_provider_lakecdc.watermark import parse_moment, read_watermark

if TYPE_CHECKING:
    from airflow.sdk import Context


class IcebergWatermarkSensor(BaseSensorOperator):
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
    ui_color = "#d9ecf2"

    def __init__(
        self,
        *,
        table: str,
        moment: str = "{{ data_interval_end }}",
        catalog_conn_id: str | None = None,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.moment = moment
        self.catalog_conn_id = catalog_conn_id or settings.catalog_conn_id()
        self.deferrable = deferrable

    def poke(self, context: Context) -> PokeReturnValue:
        """Look at the table once; the return value of the task is the time found, ISO-8601."""
        wanted = self._wanted()
        found = read_watermark(get_catalog(self.catalog_conn_id), self.table)
        self.log.info("%s has been fed up to %s, waiting for %s", self.table, found, wanted)
        reached = found is not None and found >= wanted
        return PokeReturnValue(reached, found.isoformat() if found and reached else None)

    def execute(self, context: Context) -> Any:
        """Wait here, or look once and then wait in the triggerer."""
        if not self.deferrable:
            return super().execute(context)
        first = self.poke(context)
        if first.is_done:
            return first.xcom_value
        self.defer(
            trigger=IcebergWatermarkTrigger(
                table=self.table,
                catalog_conn_id=self.catalog_conn_id,
                moment=self._wanted().isoformat(),
                poll_interval=self.poke_interval,
            ),
            method_name="execute_complete",
            # the base class turns the end of this time into AirflowSensorTimeout
            timeout=timedelta(seconds=self.timeout),
        )

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> str:
        """Take up what the trigger found.

        :raises LakecdcJobError: if the table could not be read.
        """
        if event.get("status") != "reached":
            raise LakecdcJobError(f"{self.table}: the wait has failed: {event.get('message', event)}")
        self.log.info("%s has been fed up to %s", self.table, event["read_through"])
        return str(event["read_through"])

    def _wanted(self) -> datetime:
        try:
            return parse_moment(self.moment)
        except (TypeError, ValueError) as error:
            raise AirflowFailException(
                f"moment is {self.moment!r}, which is no ISO-8601 moment. Runs without a data interval "
                "(asset-triggered or partitioned) have to be given one; scheduled DAGs need a timetable with "
                "intervals, such as CronDataIntervalTimetable."
            ) from error
