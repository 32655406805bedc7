"""Whether positions and slot are those that the tables can go on from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecdc.contract.errors import InputError
from lakecdc.ingest.sources.database import full_load_needed
from lakecdc.ingest.sources.postgres.catalog import find_table, source_name, table_of
from lakecdc.ingest.sources.postgres.slots import find_slot

if TYPE_CHECKING:
    from lakecdc.contract.sources.postgres import PostgresSource
    from lakecdc.contract.target import Target
    from lakecdc.ingest.sources.postgres.catalog import SourceTable
    from lakecdc.ingest.sources.postgres.slots import Session, Slot
    from lakecdc.metadata.positions import Position

TYPE = "postgres"


def check_position(name: str, position: Position, identity: str, place: str) -> None:
    """Refuse a position that another source has given.

    :param name: the table.
    :param identity: of the cluster.
    :param place: where it is, for messages.
    :raises InputError: saying what differs.
    """
    if position.source != TYPE:
        raise InputError(f"The table was fed from a source of type {position.source}.", table=name)
    if position.identity != identity:
        raise InputError(
            f"Its position {position.offsets['lsn']} belongs to the cluster and timeline {position.identity}, "
            f"but Postgres at {place} is {identity}: another cluster, a restored one, or a "
            "standby that was promoted.",
            table=name,
            hint='Give the right source.dsn, or run once with "reload": ["*"] in options to load the tables anew.',
        )


def check_still_there(session: Session, slot: str, target: Target, position: Position | None) -> None:
    """Refuse a target whose source table was dropped or renamed since it was fed.

    :param slot: the slot's name.
    :param position: where the target stands; None if it was never fed.
    :raises InputError: saying what the slot keeps for it.
    """
    if position is None or find_table(session, target) is not None:
        return
    label, oid = ".".join(source_name(target)), position.offsets.get("oid")
    name = table_of(session, oid) if oid else None
    found = find_slot(session, slot)
    kept = f", {found.lag_bytes / 1024**2:,.0f} MB by now" if found else ""
    held = f"The slot {slot!r} keeps the log from {position.offsets['lsn']} on for its target{kept}."
    if name:
        raise InputError(
            f"The source table {label} was renamed to {name}. {held}",
            table=target.table,
            hint=f'Set "source_table" of its target to "{name}", or rename it back.',
        )
    raise InputError(
        f"The source table {label} was dropped. {held}",
        table=target.table,
        hint="Take the target out of the configuration to let the slot move on; the target's rows stay. If the table "
        f'was made anew under another name, set "source_table" and run once with "reload": ["{target.table}"] in '
        "options.",
    )


def check_same_table(table: SourceTable, position: Position | None) -> None:
    """Refuse a source table that has the name of the one that was loaded.

    :param position: where its target stands; None if it was never fed.
    :raises InputError: it was dropped and made anew.
    """
    if position and position.offsets.get("oid", table.oid) != table.oid:
        raise full_load_needed(f"The source table {table.label} was dropped and made anew", table.target.table)


def check_slot(source: PostgresSource, slot: Slot | None, fed: bool) -> None:
    """Refuse a slot that cannot be gone on from.

    :param slot: None if there is none.
    :param fed: whether a table has a position.
    :raises InputError: saying what is missing.
    """
    name = source.slot
    if slot is None and fed:
        raise InputError(
            f"The slot {name!r} is gone from the source, and with it the log that the tables have not seen.",
            hint='Run once with "reload": ["*"] in options: the tables are loaded anew, from a new slot on.',
        )
    if slot is None and not source.create:
        raise InputError(
            f"The source has no slot {name!r}, and source.create is false.",
            hint="Run postgres_slot.py create --spec …, or allow source.create.",
        )
    if slot is not None and slot.lost:
        raise InputError(
            f"The source has removed log that the slot {name!r} needed (max_slot_wal_keep_size).",
            hint="Run SELECT pg_drop_replication_slot('…') at the source, then once with "
            '"reload": ["*"] in options: the tables are loaded anew, from a new slot on.',
        )


def check_publication(name: str, exists: bool, fed: bool) -> None:
    """Refuse to go on from a publication that is gone.

    :param fed: whether a table has a position.
    :raises InputError: saying what to do.
    """
    if fed and not exists:
        raise InputError(
            f"The publication {name!r} is gone from the source; changes made meanwhile may be lost.",
            hint='Run once with "reload": ["*"] in options: the tables are loaded anew, through a new publication.',
        )
