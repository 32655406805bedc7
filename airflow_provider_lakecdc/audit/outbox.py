"""Rows on their way to the lake: documents below ``[lakecdc] documents_uri``, which go once their rows are there."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow.sdk import ObjectStoragePath

from airflow_provider_lakecdc.audit.batch import Batch, parse_batch
from lakecdc.contract.errors import SpecError

if TYPE_CHECKING:
    from airflow_provider_lakecdc.hooks.catalog import CatalogConnection

log = logging.getLogger(__name__)
#: name of the folder among those of DAGs
FOLDER = "lakecdc_outbox"
_TIME = "%Y%m%dT%H%M%S"
_NAME = re.compile(r"(\d{8}T\d{6})_[\w-]+\.json\Z")


@dataclass(frozen=True)
class Outbox:
    """The documents of one catalog.

    :param folder: a URI.
    """

    folder: str

    @classmethod
    def of(cls, catalog: CatalogConnection, documents_uri: str) -> Outbox:
        """The outbox of a catalog; catalogs of the same name at several places have their own."""
        place = json.dumps([catalog.references.get(name) for name in ("uri", "warehouse")])
        digest = hashlib.sha256(place.encode()).hexdigest()[:8]
        return cls(f"{documents_uri.rstrip('/')}/{FOLDER}/{catalog.name}-{digest}")

    def put(self, batch: Batch) -> str:
        """Write a batch down.

        :return: the document's name.
        """
        name = f"{batch.made_at.astimezone(UTC):{_TIME}}_{batch.id}.json"
        folder = ObjectStoragePath(self.folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(batch.to_json())
        return name

    def remove(self, name: str) -> None:
        """Remove a document whose rows are there."""
        (ObjectStoragePath(self.folder) / name).unlink(missing_ok=True)

    def waiting(self, before: datetime) -> Iterator[tuple[str, Batch]]:
        """Documents from before a moment with their names, the oldest first. One that cannot be read stays."""
        for name in _names(ObjectStoragePath(self.folder), before):
            try:
                yield name, parse_batch((ObjectStoragePath(self.folder) / name).read_text())
            except FileNotFoundError:
                # another writer has delivered it
                continue
            except SpecError as error:
                log.warning("%s/%s stays where it is: %s", self.folder, name, error)


def undelivered(documents_uri: str, before: datetime) -> list[str]:
    """URIs of the documents of all catalogs that are from before a moment, and whose rows are in no table yet."""
    base = ObjectStoragePath(f"{documents_uri.rstrip('/')}/{FOLDER}")
    folders = [folder for folder in base.iterdir() if folder.is_dir()] if base.exists() else []
    return [f"{folder}/{name}" for folder in folders for name in _names(folder, before)]


def _names(folder: ObjectStoragePath, before: datetime) -> list[str]:
    if not folder.exists():
        return []
    # some clients remember what they have listed
    folder.fs.invalidate_cache()
    dated = {path.name: found[1] for path in folder.iterdir() if (found := _NAME.match(path.name))}
    limit = before.astimezone(UTC).strftime(_TIME)
    return sorted(name for name, made in dated.items() if made < limit)
