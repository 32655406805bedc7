"""Batches of rows, and their outbox: documents below ``[lakecdc] documents_uri`` until their rows are in the lake."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from airflow.sdk import ObjectStoragePath

from airflow_provider_lakecdc.audit.lake_tables import LAKE_TABLES, LakeTable
from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
from lakecdc.contract.errors import SpecError
from lakecdc.contract.spec import loads

log = logging.getLogger(__name__)
Row = TypeVar("Row")
VERSION = 1
#: folder beside the DAGs' folders
FOLDER = "lakecdc_outbox"
_TIME = "%Y%m%dT%H%M%S"
_NAME = re.compile(r"(\d{8}T\d{6})_[\w-]+\.json\Z")


@dataclass(frozen=True)
class Batch:
    """Rows of the audit or the health table, as JSON; the id identifies their commit, which is after ``made_at``."""

    id: str
    table: LakeTable[Any]
    made_at: datetime
    rows: Sequence[dict[str, Any]]

    @classmethod
    def of(cls, id: str, table: LakeTable[Row], rows: Sequence[Row]) -> Batch:
        """Create a batch of new rows."""
        return cls(id, table, datetime.now(UTC), table.documents(rows))

    def to_json(self) -> str:
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


@dataclass(frozen=True)
class Outbox:
    """The outbox documents of one catalog, in a folder."""

    folder: str

    @classmethod
    def of(cls, catalog: CatalogConnection, documents_uri: str) -> Outbox:
        """Return a catalog's outbox; catalogs with the same name and different addresses have different ones."""
        place = json.dumps([catalog.references.get(name) for name in ("uri", "warehouse")])
        digest = hashlib.sha256(place.encode()).hexdigest()[:8]
        return cls(f"{documents_uri.rstrip('/')}/{FOLDER}/{catalog.name}-{digest}")

    def put(self, batch: Batch) -> str:
        """Write a batch to the outbox, and return the document's name."""
        name = f"{batch.made_at.astimezone(UTC):{_TIME}}_{batch.id}.json"
        folder = ObjectStoragePath(self.folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(batch.to_json())
        return name

    def remove(self, name: str) -> None:
        """Remove a delivered document."""
        (ObjectStoragePath(self.folder) / name).unlink(missing_ok=True)

    def waiting(self, before: datetime) -> Iterator[tuple[str, Batch]]:
        """Yield documents from before a moment with their names, oldest first; skip unreadable ones."""
        for name in _names(ObjectStoragePath(self.folder), before):
            try:
                yield name, parse_batch((ObjectStoragePath(self.folder) / name).read_text())
            except FileNotFoundError:
                # delivered by another writer
                continue
            except SpecError as error:
                log.warning("Leaving %s/%s in the outbox: %s", self.folder, name, error)


def undelivered(documents_uri: str, before: datetime) -> list[str]:
    """Return the URIs of all catalogs' undelivered documents from before a moment."""
    base = ObjectStoragePath(f"{documents_uri.rstrip('/')}/{FOLDER}")
    folders = [folder for folder in base.iterdir() if folder.is_dir()] if base.exists() else []
    return [f"{folder}/{name}" for folder in folders for name in _names(folder, before)]


def _names(folder: ObjectStoragePath, before: datetime) -> list[str]:
    if not folder.exists():
        return []
    # some clients cache listings
    folder.fs.invalidate_cache()
    dated = {path.name: match[1] for path in folder.iterdir() if (match := _NAME.match(path.name))}
    limit = before.astimezone(UTC).strftime(_TIME)
    return sorted(name for name, written in dated.items() if written < limit)
