"""Whether positions and slot are those that the tables can go on from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecdc.contract.errors import InputError
from lakecdc.ingest.sources.database import full_load_needed

if TYPE_CHECKING:
    from lakecdc.contract.sources.postgres import PostgresSource
    from lakecdc.ingest.sources.postgres.catalog import SourceTable
    from lakecdc.ingest.sources.postgres.slots import Slot
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
