"""Names of the folders that a Spark application writes its data and delete files to.

Committed files stay there. For uncommitted files the name identifies the writer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

_START = "%Y%m%dT%H%M%SZ"
# in some layouts Iceberg prefixes the folder's name with a hash and a hyphen
_NAME = re.compile(r"\blakecdc-(?P<job>\w+)-(?P<start>\d{8}T\d{6}Z)-(?P<application>[A-Za-z0-9]+)/", re.ASCII)
_OTHER = re.compile(r"\W+", re.ASCII)
_LONGEST = 12


@dataclass(frozen=True)
class Mark:
    """Identity of a writer.

    :param job: letters, digits and underscores.
    :param start: start of its Spark application, such as ``20260104T033000Z``.
    :param application: the end of the application's id, letters and digits.
    """

    job: str
    start: str
    application: str

    @property
    def folder(self) -> str:
        """Return the folder's name."""
        return f"lakecdc-{self.job}-{self.start}-{self.application}"

    @property
    def started(self) -> str:
        """Return the start in ISO-8601, or unchanged if it is not a time."""
        try:
            return datetime.strptime(self.start, _START).replace(tzinfo=UTC).isoformat()
        except ValueError:
            return self.start


def mark(job: str, started_ms: int, application: str) -> Mark:
    """Build the mark of an application; characters of the job that do not suit a folder's name become underscores.

    :param started_ms: milliseconds since 1970.
    :param application: Spark's id of it.
    """
    start = datetime.fromtimestamp(started_ms / 1000, UTC).strftime(_START)
    short = re.sub("[^A-Za-z0-9]", "", application)[-_LONGEST:]
    return Mark(_OTHER.sub("_", job).strip("_") or "job", start, short or "0")


def mark_in(location: str) -> Mark | None:
    """Find the mark in the location of a file; return None if there is none."""
    match = _NAME.search(location)
    return Mark(**match.groupdict()) if match else None
