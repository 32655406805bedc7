"""Register consumers of a table's changes and advance them, through pyiceberg.

``expire_snapshots`` keeps the snapshots after a consumer's until the consumer advances, or is silent for longer than
its limit.
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
    """Register a consumer; an existing one keeps its snapshot and gets the new limit.

    :param snapshot_id: the last snapshot it read; default: the head of ``main``.
    :param limit: seconds without progress, while there are changes to read, after which its snapshots may expire.
    :raises InputError: the table or snapshot does not exist, or the table has no snapshot.
    """
    check_name(name, table)

    def change(loaded: Table, transaction: Transaction) -> Consumer:
        present = read_consumers(loaded.properties).get(name)
        ancestors = list(branch_snapshots(loaded))
        read = present.snapshot_id if present else snapshot_id
        if read is None and ancestors:
            read = ancestors[0].snapshot_id
        at = present.moved_at if present else datetime.now(UTC)
        consumer = Consumer(name, _ancestor(ancestors, read, name, table).snapshot_id, limit, at)
        if consumer != present:
            _put(loaded, transaction, consumer)
        return consumer

    return commit_metadata(catalog, table, change)


def move_consumer(catalog: CatalogConnection, table: str, name: str, snapshot_id: int) -> Consumer:
    """Record that a consumer has read up to a snapshot; it never moves back.

    :raises InputError: the consumer does not exist, or its own or the new snapshot is not in the history of ``main``,
        such as after a rollback.
    """

    def change(loaded: Table, transaction: Transaction) -> Consumer:
        present = _present(loaded, name)
        ancestors = list(branch_snapshots(loaded))
        order = [s.snapshot_id for s in ancestors]
        _ancestor(ancestors, present.snapshot_id, name, table)
        _ancestor(ancestors, snapshot_id, name, table)
        if order.index(snapshot_id) >= order.index(present.snapshot_id):
            return present
        consumer = Consumer(name, snapshot_id, present.limit, datetime.now(UTC))
        _put(loaded, transaction, consumer)
        return consumer

    return commit_metadata(catalog, table, change)


def drop_consumer(catalog: CatalogConnection, table: str, name: str) -> bool:
    """Remove a consumer, and return whether it existed."""

    def change(loaded: Table, transaction: Transaction) -> bool:
        present = read_consumers(loaded.properties).get(name)
        if present is None:
            return False
        transaction.remove_properties(present.property_name)
        if present.tag in loaded.metadata.refs:
            _refs(transaction).remove_tag(present.tag).commit()
        return True

    return commit_metadata(catalog, table, change)


def unread(catalog: CatalogConnection, table: str, name: str) -> tuple[int, int] | None:
    """Return the last snapshot that a consumer read and the head of ``main``, or None if they are equal.

    :raises InputError: the consumer does not exist, or its snapshot is no longer in the history of ``main``.
    """
    with open_table(catalog, table) as loaded:
        present = _present(existing(loaded, table), name)
        ancestors = list(branch_snapshots(existing(loaded, table)))
        _ancestor(ancestors, present.snapshot_id, name, table)
    head = ancestors[0].snapshot_id
    return None if head == present.snapshot_id else (present.snapshot_id, head)


def _present(loaded: Table, name: str) -> Consumer:
    known = read_consumers(loaded.properties)
    if name not in known:
        raise InputError(
            f"Consumer {name!r} does not exist.",
            table=".".join(loaded.name()),
            hint=f"Register it first. Existing consumers: {', '.join(sorted(known)) or 'none'}.",
        )
    return known[name]


def _ancestor(ancestors: Sequence[Snapshot], snapshot_id: int | None, name: str, table: str) -> Snapshot:
    for snapshot in ancestors:
        if snapshot.snapshot_id == snapshot_id:
            return snapshot
    what = f"Snapshot {snapshot_id} is not in the table's history"
    if snapshot_id is None:
        what = "The table has no snapshot yet"
    if snapshot_id == UNREADABLE:
        what = f"The property {CONSUMER_PREFIX}{name} is not readable"
    raise InputError(
        f"{what}, so consumer {name!r} cannot continue.",
        table=table,
        hint="After an expiry or a rollback, drop the consumer, read the whole table and register it again.",
    )


def _put(loaded: Table, transaction: Transaction, consumer: Consumer) -> None:
    snapshot = loaded.snapshot_by_id(consumer.snapshot_id)
    assert snapshot is not None
    # Iceberg counts a ref's age from its snapshot's timestamp, not from its creation
    age = max(int(time.time() * 1000) - snapshot.timestamp_ms, 0) + int(consumer.limit * 1000)
    transaction.set_properties({consumer.property_name: consumer.encode()})
    _refs(transaction).create_tag(consumer.snapshot_id, consumer.tag, max_ref_age_ms=age).commit()


def _refs(transaction: Transaction):  # type: ignore[no-untyped-def]
    from pyiceberg.table.update.snapshot import ManageSnapshots

    return ManageSnapshots(transaction)
