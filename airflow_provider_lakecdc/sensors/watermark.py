"""The sensor of watermarks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar

from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
from airflow_provider_lakecdc.lake.tables import read_watermark
from airflow_provider_lakecdc.sensors.polling import PollingSensor
from lakecdc.contract.errors import SpecError
from lakecdc.contract.fields import parse_duration, parse_moment
from lakecdc.metadata.freshness import judge_freshness


class IcebergWatermarkSensor(PollingSensor):
    """Wait until a table's watermark reaches a moment of its source, or until it is fresh.

    An idle source does not block it: ingest runs without changes advance the watermark too. A table that does not exist
    yet keeps it waiting. The return value is the watermark, ISO-8601.

    :param table: ``namespace.name``. (templated)
    :param moment: ISO-8601; without a zone UTC. Default: the end of the run's data interval. (templated)
    :param freshness: wait until the watermark is at most this old, such as ``30m``, instead of for a moment.
    """

    goal: ClassVar[str] = "the watermark of {table}, moment {moment}, freshness {freshness}"
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

    @staticmethod
    def check(
        catalog: CatalogConnection, *, table: str, moment: str | None = None, freshness: str | None = None
    ) -> str | None:
        """Return the watermark if it has reached the moment, or is fresh.

        :param moment: ISO-8601; not used with ``freshness``.
        """
        reached = None if freshness else parse_moment(moment or "", "moment")
        if (watermark := read_watermark(catalog, table)) is None:
            return None
        text = watermark.isoformat()
        is_over = (
            judge_freshness(freshness or "", text, datetime.now(UTC)).is_kept
            if reached is None
            else watermark >= reached
        )
        return text if is_over else None

    def check_arguments(self) -> dict[str, Any]:
        """Return the table, and the freshness or the moment with a zone."""
        arguments = {"table": self.table, "moment": None, "freshness": self.freshness}
        if self.freshness is not None:
            return arguments
        try:
            return {**arguments, "moment": parse_moment(self.moment, "moment").isoformat()}
        except (TypeError, SpecError) as error:
            raise AirflowFailException(
                f"moment {self.moment!r} is not an ISO-8601 timestamp. Set it for runs without a data interval "
                "(asset-triggered or partitioned); scheduled DAGs need a timetable with "
                "intervals, such as CronDataIntervalTimetable."
            ) from error
