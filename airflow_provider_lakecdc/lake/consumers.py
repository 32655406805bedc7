"""Registering consumers of a table's changes and moving them on, through pyiceberg.

What lies between a consumer's snapshot and the head is kept by ``expire_snapshots`` until the consumer has moved on, or
has been silent for longer than its limit.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow_provider_lakecdc.lake.tables import branch_snapshots, commit_metadata, existing, open_table
from lakecdc.contract.errors import InputError
from lakecdc.metadata.consumers import LIMIT, UNREADABLE, Consumer, check_name, read_consumers
from lakecdc.metadata.names import CONSUMER_PREFIX

if TYPE_CHECKING:
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.snapshots import Snapshot

    from airflow_provider_lakecdc.hooks.catalog import CatalogConnection


def register_consumer(
    catalog: CatalogConnection, table: str, name: str, *, snapshot_id: int | None = None, limit: float = LIMIT
) -> Consumer:
    """Register a consumer; one that is registered already stays where it is, with the limit given.

    :param table: ``namespace.name``.
    :param snapshot_id: the last snapshot it has read; default: the head of ``main``.
    :param limit: seconds without a move, while there is something to read, after which it counts no more.
    :raises InputError: no such table or snapshot, or a table without a snapshot.
    """
    check_name(name, table)

    def change(found: Table, transaction: Transaction) -> Consumer:
        present = read_consumers(found.properties).get(name)
        ancestors = list(branch_snapshots(found))
        read = present.snapshot_id if present else snapshot_id
        if read is None and ancestors:
            read = ancestors[0].snapshot_id
        at = present.moved_at if present else datetime.now(UTC)
        consumer = Consumer(name, _ancestor(ancestors, read, name, table).snapshot_id, limit, at)
        if consumer != present:
            _put(found, transaction, consumer)
        return consumer

    return commit_metadata(catalog, table, change)


def move_consumer(catalog: CatalogConnection, table: str, name: str, snapshot_id: int) -> Consumer:
    """Note that a consumer has read up to a snapshot. It never goes back: one that is further stays there.

    :param snapshot_id: what it has read last.
    :raises InputError: no such consumer, or a snapshot that is not in the history of ``main``; after a rollback the
        consumer's own is not, and the consumer stops.
    """

    def change(found: Table, transaction: Transaction) -> Consumer:
        present = _present(found, name)
        ancestors = list(branch_snapshots(found))
        order = [s.snapshot_id for s in ancestors]
        _ancestor(ancestors, present.snapshot_id, name, table)
        _ancestor(ancestors, snapshot_id, name, table)
        if order.index(snapshot_id) >= order.index(present.snapshot_id):
            return present
        consumer = Consumer(name, snapshot_id, present.limit, datetime.now(UTC))
        _put(found, transaction, consumer)
        return consumer

    return commit_metadata(catalog, table, change)


def drop_consumer(catalog: CatalogConnection, table: str, name: str) -> bool:
    """Forget a consumer.

    :return: whether there was one.
    """

    def change(found: Table, transaction: Transaction) -> bool:
        present = read_consumers(found.properties).get(name)
        if present is None:
            return False
        transaction.remove_properties(present.property_name)
        if present.tag in found.metadata.refs:
            _refs(transaction).remove_tag(present.tag).commit()
        return True

    return commit_metadata(catalog, table, change)


def unread(catalog: CatalogConnection, table: str, name: str) -> tuple[int, int] | None:
    """What a consumer has not read yet.

    :return: the last snapshot it has read and the head of ``main``; None if these are the same.
    :raises InputError: no such consumer, or its snapshot is not in the history of ``main`` any more.
    """
    with open_table(catalog, table) as found:
        present = _present(existing(found, table), name)
        ancestors = list(branch_snapshots(existing(found, table)))
        _ancestor(ancestors, present.snapshot_id, name, table)
    head = ancestors[0].snapshot_id
    return None if head == present.snapshot_id else (present.snapshot_id, head)


def _present(found: Table, name: str) -> Consumer:
    known = read_consumers(found.properties)
    if name not in known:
        raise InputError(
            f"There is no consumer {name!r}.",
            table=".".join(found.name()),
            hint=f"Register it first; there are {', '.join(sorted(known)) or 'none'}.",
        )
    return known[name]


def _ancestor(ancestors: Sequence[Snapshot], snapshot_id: int | None, name: str, table: str) -> Snapshot:
    for snapshot in ancestors:
        if snapshot.snapshot_id == snapshot_id:
            return snapshot
    what = f"Snapshot {snapshot_id} is not in its history"
    if snapshot_id is None:
        what = "The table has no snapshot yet"
    if snapshot_id == UNREADABLE:
        what = f"The property {CONSUMER_PREFIX}{name} cannot be read"
    raise InputError(
        f"{what}: the consumer {name!r} has nothing to go on from.",
        table=table,
        hint="After an expiry or a rollback drop the consumer, read the table in full, and register it again.",
    )


def _put(found: Table, transaction: Transaction, consumer: Consumer) -> None:
    snapshot = found.snapshot_by_id(consumer.snapshot_id)
    assert snapshot is not None
    # Iceberg counts a ref's age from the time of its snapshot, not from the time the ref was made
    age = max(int(time.time() * 1000) - snapshot.timestamp_ms, 0) + int(consumer.limit * 1000)
    transaction.set_properties({consumer.property_name: consumer.encode()})
    _refs(transaction).create_tag(consumer.snapshot_id, consumer.tag, max_ref_age_ms=age).commit()


def _refs(transaction: Transaction):  # type: ignore[no-untyped-def]
    from pyiceberg.table.update.snapshot import ManageSnapshots

    return ManageSnapshots(transaction)
