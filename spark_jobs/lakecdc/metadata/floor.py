"""The floor of a table whose old rows have expired: rows below it are not taken in again.

The job that removes the rows records it as a property, in the same commit. It never moves back. A row without a value
in the column is not below it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from lakecdc.contract.errors import InputError
from lakecdc.metadata.names import EXPIRED_BELOW

#: types of columns that a floor can be of, as Iceberg calls them
TIMES = ("date", "timestamp", "timestamptz")


@dataclass(frozen=True)
class Floor:
    """What has expired.

    :param field_id: of the column; a renamed column keeps it.
    :param column: its name when the floor was recorded, for people.
    :param below: rows with a moment before this one have expired; dates and times without a zone are taken as UTC.
    """

    field_id: int
    column: str
    below: datetime

    def encode(self) -> str:
        """The property's value."""
        below = self.below.astimezone(UTC).isoformat()
        return json.dumps({"column": self.column, "field_id": self.field_id, "below": below})


def read_floor(properties: Mapping[str, str], table: str | None = None) -> Floor | None:
    """A table's floor; None if nothing of it has expired.

    :param table: its name, for the message.
    :raises InputError: somebody has changed the property to what is no floor.
    """
    text = properties.get(EXPIRED_BELOW)
    if text is None:
        return None
    try:
        found = json.loads(text)
        below = datetime.fromisoformat(found["below"])
        return Floor(int(found["field_id"]), str(found["column"]), below if below.tzinfo else below.replace(tzinfo=UTC))
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"The table property {EXPIRED_BELOW!r} is {text!r}, which is no floor.",
            table=table,
            hint="Put its former value back; without the property, rows that have expired may come in again.",
        ) from error


def text_of(moment: datetime, kind: str) -> str:
    """A moment as a text that Iceberg and Spark read as a value of a type.

    :param moment: with a zone.
    :param kind: one of :data:`TIMES`.
    """
    utc = moment.astimezone(UTC)
    if kind == "date":
        return utc.date().isoformat()
    return utc.isoformat() if kind == "timestamptz" else utc.replace(tzinfo=None).isoformat()
