"""Registration and movement of consumers, property and tag in one commit."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lakecdc.iceberg.commit import set_properties
from lakecdc.iceberg.commit_outcome import retried
from lakecdc.iceberg.refs import Ref, put_refs, ref_age_ms
from lakecdc.metadata.consumers import LIMIT, Consumer, check_name, read_consumers

if TYPE_CHECKING:
    from lakecdc.iceberg.table import IcebergTable, Snapshot


def put_consumer(table: IcebergTable, name: str, snapshot: Snapshot) -> None:
    """Record that a consumer has read up to a snapshot, which may be before its last one.

    A new consumer has the default limit, any other keeps its own.

    :raises InputError: the name is invalid.
    """
    present = read_consumers(table.refresh().properties).get(check_name(name, table.name))
    if present is not None and present.snapshot_id == snapshot.id:
        return
    consumer = Consumer(name, snapshot.id, present.limit if present else LIMIT, datetime.now(UTC))
    tag = Ref(snapshot.id, "tag", ref_age_ms(snapshot, consumer.limit))

    def commit() -> None:
        transaction = table.java.newTransaction()
        set_properties(transaction, {consumer.property_name: consumer.encode()})
        put_refs(table, {consumer.tag: tag}, owner=transaction)
        transaction.commitTransaction()

    retried(table, commit)
    table.refresh()
