"""The sensor of watermarks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_lakecdc.sensors.polling import PollingSensor
from airflow_provider_lakecdc.triggers.watermark import IcebergWatermarkTrigger
from lakecdc.contract.errors import SpecError
from lakecdc.contract.fields import parse_duration, parse_moment


class IcebergWatermarkSensor(PollingSensor):
    """Wait until a table's watermark reaches a moment of its source, or until it is fresh.

    An idle source does not block it: ingest runs without changes advance the watermark too. A table that does not exist
    yet keeps it waiting. The return value is the watermark, ISO-8601.

    :param table: ``namespace.name``. (templated)
    :param moment: ISO-8601; without a zone UTC. Default: the end of the run's data interval. (templated)
    :param freshness: wait until the watermark is at most this old, such as ``30m``, instead of for a moment.
    :param kwargs: see :class:`airflow_provider_lakecdc.sensors.polling.PollingSensor`.
    """

    trigger_class = IcebergWatermarkTrigger
    template_fields: Sequence[str] = (*PollingSensor.template_fields, "table", "moment")

    def __init__(
        self, *, table: str, moment: str = "{{ data_interval_end }}", freshness: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        if freshness is not None:
            # a DAG file with an invalid duration is not imported
            parse_duration(freshness, "freshness")
        self.table = table
        self.moment = moment
        self.freshness = freshness

    def parsed(self) -> dict[str, Any]:
        """Return the moment with a zone."""
        if self.freshness is not None:
            return {"moment": None}
        try:
            return {"moment": parse_moment(self.moment, "moment").isoformat()}
        except (TypeError, SpecError) as error:
            raise AirflowFailException(
                f"moment {self.moment!r} is not an ISO-8601 timestamp. Set it for runs without a data interval "
                "(asset-triggered or partitioned); scheduled DAGs need a timetable with "
                "intervals, such as CronDataIntervalTimetable."
            ) from error
