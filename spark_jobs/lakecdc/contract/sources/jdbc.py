"""The ``source`` of an ingest spec: tables of a database, read by a column that rises with every change."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from lakecdc.contract.errors import SpecError
from lakecdc.contract.fields import check_zone
from lakecdc.contract.target import Target

_URL = re.compile(r"jdbc:(postgresql|mysql|sqlite):\S+")
_REMEDY = (
    "Give start and end in ISO-8601, such as {{ data_interval_start }} and {{ data_interval_end }}, and schedule the "
    "DAG by a timetable whose runs have an interval, such as CronDataIntervalTimetable: those of a bare cron string "
    "have none in Airflow 3. A run that is triggered by hand has one if it is given a logical date."
)


@dataclass(frozen=True)
class Interval:
    """A half-open stretch of time, ``start`` in it and ``end`` not.

    :param start: ISO-8601; without a zone UTC.
    :param end: ISO-8601; without a zone UTC.
    """

    start: str
    end: str

    def __post_init__(self) -> None:
        if not self.start or not self.end or self.moments[0] >= self.moments[1]:
            raise SpecError(f"source.interval is empty: [{self.start}, {self.end}).", hint=_REMEDY)

    @property
    def moments(self) -> tuple[datetime, datetime]:
        """Both ends in UTC.

        :raises SpecError: if one is no moment, such as the text that a template leaves without an interval.
        """
        return _moment(self.start), _moment(self.end)


@dataclass(frozen=True)
class JdbcSource:
    """Tables of a database, read with plain queries: the rows whose cursor column lies in a data interval.

    A row that is deleted at the source cannot be seen.

    :param url: ``jdbc:postgresql://…``, ``jdbc:mysql://…`` or ``jdbc:sqlite:…``, without user and password.
    :param cursor_column: column that rises with every change of a row: a timestamp, a date or an integer. One name for
        all targets.
    :param user: login with SELECT on the tables.
    :param password: a secret reference; default: none.
    :param interval: stretch of time to read. Required with a time as the cursor; to be left out with an integer, which
        goes on from the highest value known.
    :param full_load: read a table that was never fed from its beginning, up to the interval's end if there is one.
    :param cursor_zone: zone of cursor columns that store times without one.
    :param lag_seconds: how long after its cursor's time a row may become visible (long transactions, several writers):
        each interval is read again from so much before its start.
    :param lag_values: the same with an integer cursor, in its units.
    :param partitions: readers at once, each with a range of the cursor.
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
                "source.url is no JDBC address of a database that is known.",
                hint="It begins with jdbc:postgresql:, jdbc:mysql: or jdbc:sqlite:.",
            )
        if re.search(r"[?&;](user|password)=", self.url):
            raise SpecError("source.url holds a login.", hint='Give "user" and "password": {"env": "NAME"} beside it.')
        for name, least in (("lag_seconds", 0), ("lag_values", 0), ("partitions", 1), ("fetch_size", 1)):
            if getattr(self, name) < least:
                raise SpecError(f"source.{name} is {getattr(self, name)}.", hint=f"It must be at least {least}.")
        check_zone(self.cursor_zone, "source.cursor_zone")

    @property
    def dialect(self) -> str:
        """``postgresql``, ``mysql`` or ``sqlite``."""
        return self.url.split(":", 2)[1]

    def check_targets(self, targets: tuple[Target, ...]) -> None:
        """Any target will do: the key is the table's primary key unless the target names one."""


def missing_interval(table: str, column: str) -> SpecError:
    """Return the error of a source that is addressed by time and was given none."""
    return SpecError(
        f"The cursor column {column!r} is a time, and source.interval is missing.", table=table, hint=_REMEDY
    )


def _moment(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise SpecError(f"source.interval has {text!r}, which is no ISO-8601 moment.", hint=_REMEDY) from error
    return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
