"""Writing rows without ever failing the task, or holding it up for long.

Rows are written down in the outbox first, and the document goes once they are in the lake. So there is one way for what
succeeds and for what fails: whatever becomes of the worker or of the catalog, the next writer delivers what is left.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecdc import settings
from airflow_provider_lakecdc.audit.batch import Batch
from airflow_provider_lakecdc.audit.commit import append_once
from airflow_provider_lakecdc.audit.lake_tables import AUDIT, HEALTH
from airflow_provider_lakecdc.audit.outbox import Outbox
from airflow_provider_lakecdc.audit.rows import HealthRow

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from airflow_provider_lakecdc.audit.application import Application
    from airflow_provider_lakecdc.hooks.catalog import CatalogConnection

log = logging.getLogger(__name__)
#: seconds for the rows at hand, for those that others have left, and that a task waits for in all
_OWN, _LEFT, _ALL = 20.0, 5.0, 30.0
#: a younger document is still in its writer's hands
_YOUNG = timedelta(minutes=10)


def record_application(catalog: CatalogConnection, application: Application) -> bool:
    """Write the rows of a Spark application to ``lakecdc.audit``, in one commit and once, however often this is called.

    What it has measured goes to ``lakecdc.health`` in the same way. Never raises, and takes half a minute at most.

    :return: whether the rows are there; if not, they wait in the outbox for the next call of a function of this module.
    """
    return _record(
        catalog,
        lambda: [
            Batch.of(application.id, AUDIT, application.rows()),
            Batch.of(f"{application.id}-health", HEALTH, application.health_rows()),
        ],
    )


def record_health(catalog: CatalogConnection, measured_at: datetime, rows: Mapping[str, Mapping[str, Any]]) -> bool:
    """Write how tables are to ``lakecdc.health``, in one commit. Never raises, as :func:`record_application`.

    :param rows: by table :meth:`lakecdc.metadata.health.TableHealth.facts`, perhaps with further keys; a table without
        ``score`` has not been measured and gets no row.
    :return: whether the rows are there.
    """
    return _record(catalog, lambda: [_measurement(measured_at, rows)])


def _measurement(measured_at: datetime, rows: Mapping[str, Mapping[str, Any]]) -> Batch:
    id = str(uuid.uuid4())
    measured = {table: facts for table, facts in rows.items() if facts.get("score") is not None}
    found = [
        HealthRow.of(f"{id}/{number}", table, measured_at, facts)
        for number, (table, facts) in enumerate(measured.items())
    ]
    return Batch.of(id, HEALTH, found)


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
            log.warning("Not all rows of the audit could be written; what is in the outbox goes later.", exc_info=True)

    # neither a catalog nor a store that does not answer may hold up the task, nor the end of its process
    worker = threading.Thread(target=work, name="lakecdc-audit", daemon=True)
    worker.start()
    worker.join(_ALL)
    if worker.is_alive():
        log.warning("The audit has not been written within %.0f s; what is in the outbox goes later.", _ALL)
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
    """Write a batch down; the document's name, None if that did not succeed."""
    try:
        return outbox.put(batch)
    except Exception:
        log.warning("Rows of the audit could not be put into %s.", outbox.folder, exc_info=True)
        return None


def _deliver_left(catalog: Catalog, outbox: Outbox) -> None:
    """Deliver what earlier writers could not, as much as there is time for."""
    end = time.monotonic() + _LEFT
    for name, batch in outbox.waiting(datetime.now(UTC) - _YOUNG):
        if (left := end - time.monotonic()) <= 0:
            log.warning("More rows of the audit wait in %s than there is time for now.", outbox.folder)
            return
        try:
            append_once(catalog, batch, left)
            outbox.remove(name)
        except Exception:
            # it must not keep others from going
            log.warning("%s/%s stays where it is.", outbox.folder, name, exc_info=True)
        else:
            log.info("Rows of %s from %s have been delivered.", batch.table.name, batch.made_at)
