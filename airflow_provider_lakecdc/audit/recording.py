"""Record rows without failing or delaying the task.

Rows go to the outbox first, and their document is removed once they are in the lake. Whatever happens to the worker or
the catalog, the next writer delivers the rest.
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
from airflow_provider_lakecdc.audit.commit import append_once
from airflow_provider_lakecdc.audit.lake_tables import AUDIT, HEALTH, HealthRow
from airflow_provider_lakecdc.audit.outbox import Batch, Outbox

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from airflow_provider_lakecdc.audit.application import Application
    from airflow_provider_lakecdc.hooks.catalog import CatalogConnection

log = logging.getLogger(__name__)
#: seconds: for this run's rows, for rows of earlier writers, and for the task's whole wait
_OWN, _LEFT, _ALL = 20.0, 5.0, 30.0
#: a younger document may still be in use by its writer
_YOUNG = timedelta(minutes=10)


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
