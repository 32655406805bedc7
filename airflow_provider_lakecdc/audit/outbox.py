"""Record rows without failing or delaying the task.

Rows go to an outbox first: documents below ``[lakecdc] documents_uri``, which are removed once their rows are in the
lake. Whatever happens to the worker or the catalog, the next writer delivers the rest.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.sdk import ObjectStoragePath

from airflow_provider_lakecdc import settings
from airflow_provider_lakecdc.audit.commit import append_once
from airflow_provider_lakecdc.audit.lake_tables import AUDIT, HEALTH, LAKE_TABLES, HealthRow, LakeTable
from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
from lakecdc.contract.errors import SpecError
from lakecdc.contract.spec import loads

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from airflow_provider_lakecdc.audit.application import Application

log = logging.getLogger(__name__)
Row = TypeVar("Row")
VERSION = 1
#: folder beside the DAGs' folders
FOLDER = "lakecdc_outbox"
_TIME = "%Y%m%dT%H%M%S"
_NAME = re.compile(r"(\d{8}T\d{6})_[\w-]+\.json\Z")
#: seconds: for this run's rows, for rows of earlier writers, and for the task's whole wait
_OWN, _LEFT, _ALL = 20.0, 5.0, 30.0
#: a younger document may still be in use by its writer
_YOUNG = timedelta(minutes=10)


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


def record_application(catalog: CatalogConnection, application: Application) -> bool:
    """Write an application's rows to ``lakecdc.audit`` in one commit, exactly once over any number of calls.

    Its measurements go to ``lakecdc.health`` the same way. Never raises, and takes at most half a minute.

    :return: whether the rows are written; if not, they wait in the outbox for the next call in this module.
    """
    return _record(
        catalog,
        lambda: [
            Batch.of(application.id, AUDIT, application.rows()),
            Batch.of(f"{application.id}-health", HEALTH, application.health_rows()),
        ],
    )


def record_health(catalog: CatalogConnection, measured_at: datetime, rows: Mapping[str, Mapping[str, Any]]) -> bool:
    """Write the health of tables to ``lakecdc.health`` in one commit, like :func:`record_application`.

    :param rows: :meth:`lakecdc.metadata.health.TableHealth.facts` by table, perhaps with further keys; tables without
        ``score`` were not measured and get no row.
    """
    id, measured = str(uuid.uuid4()), {table: facts for table, facts in rows.items() if facts.get("score") is not None}
    return _record(catalog, lambda: [Batch.of(id, HEALTH, HealthRow.of_all(id, measured_at, measured))])


def _record(catalog: CatalogConnection, make: Callable[[], Sequence[Batch]]) -> bool:
    done = threading.Event()

    def work() -> None:
        try:
            batches = [batch for batch in make() if batch.rows]
            outbox = Outbox.of(catalog, settings.documents_uri())
            if batches:
                _deliver(catalog, batches, outbox, done.set)
            else:
                done.set()
        except Exception:
            log.warning("Cannot write all audit rows; rows in the outbox are delivered later.", exc_info=True)

    # a catalog or store that hangs must not delay the task or the exit of its process
    worker = threading.Thread(target=work, name="lakecdc-audit", daemon=True)
    worker.start()
    worker.join(_ALL)
    if worker.is_alive():
        log.warning("Audit rows were not written within %.0f s; rows in the outbox are delivered later.", _ALL)
    return done.is_set()


def _deliver(catalog: CatalogConnection, batches: Sequence[Batch], outbox: Outbox, written: Callable[[], None]) -> None:
    named = [(batch, _put(batch, outbox)) for batch in batches]
    with closing(catalog.load()) as opened:
        for batch, _ in named:
            append_once(opened, batch, _OWN)
        written()
        for _, name in named:
            if name is not None:
                outbox.remove(name)
        _deliver_left(opened, outbox)


def _put(batch: Batch, outbox: Outbox) -> str | None:
    """Write a batch to the outbox; return the document's name, or None if that failed."""
    try:
        return outbox.put(batch)
    except Exception:
        log.warning("Cannot write audit rows to %s.", outbox.folder, exc_info=True)
        return None


def _deliver_left(catalog: Catalog, outbox: Outbox) -> None:
    """Deliver rows of earlier writers within the time limit."""
    end = time.monotonic() + _LEFT
    for name, batch in outbox.waiting(datetime.now(UTC) - _YOUNG):
        if (left := end - time.monotonic()) <= 0:
            log.warning("The time limit is reached; more audit rows wait in %s.", outbox.folder)
            return
        try:
            append_once(catalog, batch, left)
            outbox.remove(name)
        except Exception:
            # continue with the others
            log.warning("Leaving %s/%s in the outbox.", outbox.folder, name, exc_info=True)
        else:
            log.info("Delivered rows of %s from %s.", batch.table.name, batch.made_at)
