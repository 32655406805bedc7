"""The sensor of watermarks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from airflow.sdk import Context, PokeReturnValue
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_lakecdc.hooks.catalog import get_catalog
from airflow_provider_lakecdc.lake.tables import read_watermark
from airflow_provider_lakecdc.sensors.polling import PollingSensor
from airflow_provider_lakecdc.triggers.watermark import IcebergWatermarkTrigger
from lakecdc.contract.errors import SpecError
from lakecdc.contract.fields import parse_moment


class IcebergWatermarkSensor(PollingSensor):
    """Wait until a table's watermark reaches a moment of its source.

    An idle source does not block it: ingest runs without changes advance the watermark too. A table that does not exist
    yet keeps it waiting.

    :param table: ``namespace.name``. (templated)
    :param moment: ISO-8601; without a zone UTC. Default: the end of the run's data interval. (templated)
    :param kwargs: see :class:`airflow_provider_lakecdc.sensors.polling.PollingSensor`.
    """

    trigger_class = IcebergWatermarkTrigger
    template_fields: Sequence[str] = (*PollingSensor.template_fields, "table", "moment")

    def __init__(self, *, table: str, moment: str = "{{ data_interval_end }}", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.moment = moment

    def parsed(self) -> dict[str, Any]:
        """Return the moment with a zone."""
        return {"moment": self._moment().isoformat()}

    def poke(self, context: Context) -> PokeReturnValue:
        """Check the table once; the task's return value is the watermark, ISO-8601."""
        moment = self._moment()
        watermark = read_watermark(get_catalog(self.catalog_conn_id), self.table)
        self.log.info("Watermark of %s is %s, waiting for %s", self.table, watermark, moment)
        reached = watermark is not None and watermark >= moment
        return PokeReturnValue(reached, watermark.isoformat() if watermark and reached else None)

    def _moment(self) -> datetime:
        try:
            return parse_moment(self.moment, "moment")
        except (TypeError, SpecError) as error:
            raise AirflowFailException(
                f"moment {self.moment!r} is not an ISO-8601 timestamp. Set it for runs without a data interval "
                "(asset-triggered or partitioned); scheduled DAGs need a timetable with "
                "intervals, such as CronDataIntervalTimetable."
            ) from error
