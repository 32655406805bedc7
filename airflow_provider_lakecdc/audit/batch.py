"""Rows that are written in one commit, identified by the batch's id."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from airflow_provider_lakecdc.audit.lake_tables import LAKE_TABLES, LakeTable
from lakecdc.contract.errors import SpecError
from lakecdc.contract.spec import loads

Row = TypeVar("Row")
VERSION = 1


@dataclass(frozen=True)
class Batch:
    """Rows of the audit or the health table.

    :param id: identifies the commit.
    :param made_at: earlier than any commit of the batch.
    :param rows: as JSON.
    """

    id: str
    table: LakeTable[Any]
    made_at: datetime
    rows: Sequence[dict[str, Any]]

    @classmethod
    def of(cls, id: str, table: LakeTable[Row], rows: Sequence[Row]) -> Batch:
        """Create a batch of new rows."""
        return cls(id, table, datetime.now(UTC), table.documents(rows))

    def to_json(self) -> str:
        """Serialize the batch."""
        made_at = self.made_at.isoformat()
        return json.dumps(
            {"version": VERSION, "id": self.id, "table": self.table.name, "made_at": made_at, "rows": self.rows}
        )


def parse_batch(text: str) -> Batch:
    """Parse a serialized batch.

    :raises SpecError: the version differs, or the document is incomplete.
    """
    document: Any = loads(text)
    try:
        if document["version"] != VERSION:
            raise SpecError(f"Expected version {VERSION}, got {document['version']!r}.")
        made_at = datetime.fromisoformat(document["made_at"])
        return Batch(document["id"], LAKE_TABLES[document["table"]], made_at, document["rows"])
    except (KeyError, TypeError, ValueError) as error:
        raise SpecError(f"The document is not a batch of rows: {type(error).__name__}: {error}") from error
