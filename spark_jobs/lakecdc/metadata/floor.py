"""The floor of a table with expired rows: rows below it are not ingested again.

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

#: Iceberg types of a floor's column
TIMES = ("date", "timestamp", "timestamptz")


@dataclass(frozen=True)
class Floor:
    """Boundary of expired rows.

    :param field_id: of the column; a renamed column keeps it.
    :param column: its name when the floor was recorded, for display.
    :param below: rows before this time have expired; dates and times without a zone are in UTC.
    """

    field_id: int
    column: str
    below: datetime

    def encode(self) -> str:
        """Encode the property's value."""
        below = self.below.astimezone(UTC).isoformat()
        return json.dumps({"column": self.column, "field_id": self.field_id, "below": below})


def read_floor(properties: Mapping[str, str], table: str | None = None) -> Floor | None:
    """Read a table's floor; return None if nothing has expired.

    :raises InputError: the property was changed to an invalid value.
    """
    text = properties.get(EXPIRED_BELOW)
    if text is None:
        return None
    try:
        document = json.loads(text)
        below = datetime.fromisoformat(document["below"])
        return Floor(
            int(document["field_id"]), str(document["column"]), below if below.tzinfo else below.replace(tzinfo=UTC)
        )
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"Invalid table property {EXPIRED_BELOW!r}: {text!r}.",
            table=table,
            hint="Restore its former value; without the property, expired rows may return.",
        ) from error


def text_of(moment: datetime, kind: str) -> str:
    """Format a time with a zone as text that Iceberg and Spark read as a value of one of :data:`TIMES`."""
    utc = moment.astimezone(UTC)
    if kind == "date":
        return utc.date().isoformat()
    return utc.isoformat() if kind == "timestamptz" else utc.replace(tzinfo=None).isoformat()
