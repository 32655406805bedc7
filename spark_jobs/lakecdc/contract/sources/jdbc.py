"""The ``source`` of an ingest spec: tables of a database, read by a cursor column."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from lakecdc.contract.errors import SpecError
from lakecdc.contract.fields import check_least, check_zone, parse_moment

_URL = re.compile(r"jdbc:(postgresql|mysql|sqlite):\S+")
_REMEDY = (
    "Give start and end in ISO-8601, such as {{ data_interval_start }} and {{ data_interval_end }}, and schedule the "
    "DAG by a timetable whose runs have an interval, such as CronDataIntervalTimetable: those of a bare cron string "
    "have none in Airflow 3. A run that is triggered by hand has one if it is given a logical date."
)


@dataclass(frozen=True)
class Interval:
    """A half-open time interval.

    :param start: ISO-8601, included; without a zone UTC.
    :param end: the same, not included.
    """

    start: str
    end: str

    def __post_init__(self) -> None:
        if not self.start or not self.end or self.moments[0] >= self.moments[1]:
            raise SpecError(f"source.interval is empty: [{self.start}, {self.end}).", hint=_REMEDY)

    @property
    def moments(self) -> tuple[datetime, datetime]:
        """Both ends in UTC; a :class:`SpecError` if one is not a time, such as an empty template."""
        try:
            start, end = (parse_moment(text, "source.interval").astimezone(UTC) for text in (self.start, self.end))
        except SpecError as error:
            raise SpecError(error.message, hint=_REMEDY) from error
        return start, end


@dataclass(frozen=True)
class JdbcSource:
    """Tables of a database, read with queries for the rows whose cursor column is in a data interval.

    Deletes at the source are not seen.

    :param url: ``jdbc:postgresql://…``, ``jdbc:mysql://…`` or ``jdbc:sqlite:…``, without user and password.
    :param cursor_column: timestamp, date or integer column that grows with every change of a row, in all source tables.
    :param user: login with SELECT on the tables.
    :param password: a secret reference; default: none.
    :param interval: time interval to read. Required for a time cursor; not for an integer one, which continues from the
        highest known value.
    :param full_load: read a new table from its beginning, up to the end of the interval if there is one.
    :param cursor_zone: time zone of cursor columns that store times without one.
    :param lag_seconds: how long after its cursor time a row may become visible (long transactions, several writers):
        each interval is read from that much before its start.
    :param lag_values: the same for an integer cursor, in its units.
    :param partitions: number of parallel readers, each with a range of the cursor.
    :param fetch_size: rows per round trip.
    """

    url: str
    cursor_column: str
    type: Literal["jdbc"] = "jdbc"
    user: str | None = None
    password: Any = None
    interval: Interval | None = None
    full_load: bool = False
    cursor_zone: str = "UTC"
    lag_seconds: int = 0
    lag_values: int = 0
    partitions: int = 1
    fetch_size: int = 10_000

    def __post_init__(self) -> None:
        if not _URL.fullmatch(self.url):
            raise SpecError(
                "source.url is not the JDBC URL of a supported database.",
                hint="It must begin with jdbc:postgresql:, jdbc:mysql: or jdbc:sqlite:.",
            )
        if re.search(r"[?&;](user|password)=", self.url):
            raise SpecError("source.url holds a login.", hint='Give "user" and "password": {"env": "NAME"} beside it.')
        check_least(self, "source", lag_seconds=0, lag_values=0, partitions=1, fetch_size=1)
        check_zone(self.cursor_zone, "source.cursor_zone")

    @property
    def dialect(self) -> str:
        """``postgresql``, ``mysql`` or ``sqlite``."""
        return self.url.split(":", 2)[1]


def missing_interval(table: str, column: str) -> SpecError:
    """Return the error for a time cursor without an interval."""
    return SpecError(
        f"The cursor column {column!r} is a time, and source.interval is missing.", table=table, hint=_REMEDY
    )
