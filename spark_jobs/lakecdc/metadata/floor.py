"""Removed rows: the floor of expired ones, and the last erasure, as table properties; erasures in summaries too.

Rows below the floor are not ingested again. The job that removes them records it in the same commit. It never moves
back. A row without a value in the column is not below it. Ingestion checks both properties: a batch that started before
an erasure is not committed after it. Exports use the summary, because their last read snapshot is gone.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from lakecdc.contract.errors import InputError
from lakecdc.metadata import names

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
    text = properties.get(names.EXPIRED_BELOW)
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
            f"Invalid table property {names.EXPIRED_BELOW!r}: {text!r}.",
            table=table,
            hint="Restore its former value; without the property, expired rows may return.",
        ) from error


def text_of(moment: datetime, kind: str) -> str:
    """Format a time with a zone as text that Iceberg and Spark read as a value of one of :data:`TIMES`."""
    utc = moment.astimezone(UTC)
    if kind == "date":
        return utc.date().isoformat()
    return utc.isoformat() if kind == "timestamptz" else utc.replace(tzinfo=None).isoformat()


def erasure_begun(key_digest: str) -> dict[str, str]:
    """Return the unique property of an erasure that has started; the digest reveals none of the keys."""
    return {names.ERASED: json.dumps({"id": uuid.uuid4().hex, "unfinished": key_digest})}


def erasure_ended() -> dict[str, str]:
    """Return the property of a proven erasure."""
    return {names.ERASED: json.dumps({"id": uuid.uuid4().hex})}


def unfinished_erasure(properties: Mapping[str, str]) -> str | None:
    """Return the key digest of an unfinished erasure; None if there is none."""
    digest: str | None = json.loads(properties.get(names.ERASED, "{}")).get("unfinished")
    return digest


@dataclass(frozen=True)
class ErasedAfter:
    """Note of an erasing snapshot: earlier ones that differ only by erased rows, and the number of these rows."""

    snapshots: tuple[int, ...]
    rows: int

    def encode(self) -> dict[str, str]:
        """Return the entry of its summary."""
        return {names.ERASED_AFTER: json.dumps({"snapshots": self.snapshots, "rows": self.rows})}


def erased_after(summary: Mapping[str, str]) -> ErasedAfter | None:
    """Read the note from a summary; return None if the snapshot erased nothing."""
    text = summary.get(names.ERASED_AFTER)
    if text is None:
        return None
    note = json.loads(text)
    return ErasedAfter(tuple(note["snapshots"]), note["rows"])
