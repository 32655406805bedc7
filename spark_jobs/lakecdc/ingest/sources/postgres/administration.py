"""Create and drop slot and publication outside of a run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

from lakecdc.contract.errors import SpecError, concerning
from lakecdc.contract.sources.postgres import PostgresSource
from lakecdc.contract.spec import JobSpec
from lakecdc.ingest.sources.postgres import owners, slots
from lakecdc.ingest.sources.postgres.catalog import read_table
from lakecdc.ingest.sources.postgres.connect import Address, Session, address, connect, explain
from lakecdc.ingest.sources.postgres.owners import Owner
from lakecdc.ingest.sources.postgres.slots import Publication
from lakecdc.model.positions import lsn_text


def create(spec: JobSpec) -> dict[str, Any]:
    """Create the publication or add missing tables, then create the slot unless it exists.

    :raises LakecdcError: a table cannot be fed, the slot is not ours, or the source refuses.
    """
    source, where = _source(spec)
    with closing(connect(where)) as session:
        slots.check_server(session)
        tables = []
        for target in spec.targets:
            with concerning(target.table):
                tables.append(read_table(session, target))
        publication = Publication(session, where, source.publication_name)
        owner, known = Owner.of(spec.catalog, spec.targets), owners.read(session, publication.name)
        owners.check(source.slot, publication.name, known.get(source.slot), owner, lambda _: True)
        publication.publish(tables)
        if slots.usable_slot(session, source.slot) is None:
            with slots.bounded_wait(where, session, source.slot):
                session.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (source.slot,))
        owner = owner.joined(known.get(source.slot), {".".join(name) for name in publication.tables()})
        owners.note(session, publication.name, source.slot, owner)
        return _status(session, source, publication)


def drop(spec: JobSpec) -> dict[str, Any]:
    """Drop slot and publication if they exist; the tables then need a full load.

    :raises InputError: the slot is not ours.
    :raises ConflictError: the slot is in use.
    """
    import psycopg
    from psycopg import sql

    source, where = _source(spec)
    slot, publication, dropped = source.slot, source.publication_name, []
    with closing(connect(where)) as session:
        slots.lock(session, slot)
        try:
            if slots.usable_slot(session, slot):
                session.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
                dropped.append(f"slot {slot}")
            if session.execute("SELECT 1 FROM pg_publication WHERE pubname = %s", (publication,)).fetchone():
                session.execute(sql.SQL("DROP PUBLICATION {}").format(sql.Identifier(publication)))
                dropped.append(f"publication {publication}")
        except psycopg.Error as error:
            raise explain(error, where, f"drop the slot {slot!r} and the publication {publication!r}") from error
    return {"dropped": dropped}


def status(spec: JobSpec) -> dict[str, Any]:
    source, where = _source(spec)
    with closing(connect(where)) as session:
        return _status(session, source, Publication(session, where, source.publication_name))


COMMANDS: dict[str, Callable[[JobSpec], dict[str, Any]]] = {"create": create, "drop": drop, "status": status}


def _source(spec: JobSpec) -> tuple[PostgresSource, Address]:
    if not isinstance(spec.source, PostgresSource):
        raise SpecError("source.type is not postgres; only a database log has a slot.")
    return spec.source, address(spec.source)


def _status(session: Session, source: PostgresSource, publication: Publication) -> dict[str, Any]:
    slot = slots.find_slot(session, source.slot)
    return {
        "slot": slot
        and {
            "name": slot.name,
            "plugin": slot.plugin,
            "active": slot.active_pid is not None,
            "confirmed_lsn": lsn_text(slot.confirmed),
            "lost": slot.lost,
            "lag_bytes": slot.lag_bytes,
        },
        "publication": publication.check() and publication.name or None,
        "tables": sorted(".".join(name) for name in publication.tables()),
    }
