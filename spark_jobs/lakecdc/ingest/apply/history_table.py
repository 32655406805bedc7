"""The change log of a target with a keyed mode: one pass feeds both, to the same position.

The log is committed first, once the target's files are staged and only the target's commit can still refuse the batch.
Its summary names the target's state before the batch. If a run is killed between the two commits, the target still has
that state in the next run: the source then ends a batch exactly at the log's position, and the log skips that batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakecdc.contract.errors import InputError
from lakecdc.contract.target import ORDER_COLUMN, Target
from lakecdc.iceberg.table import IcebergTable, carrier_of, open_if_there
from lakecdc.ingest import tables
from lakecdc.ingest.apply.events import append_events, measure
from lakecdc.ingest.apply.publish import Applied
from lakecdc.ingest.audit import AuditError
from lakecdc.ingest.batch import Batch
from lakecdc.ingest.erased import without_erased
from lakecdc.ingest.floor import without_expired
from lakecdc.metadata import names
from lakecdc.metadata.positions import Carrier, Position, SideOf, read_side_of


@dataclass
class HistoryTable:
    """The change log of one target during a run.

    :param table: None until the first batch creates it.
    :param carrier: the snapshot with its position; None if it was never fed.
    :param recorded: end of the batch that an interrupted run wrote here but not to the target.
    :param unfinished_load: that batch is a full load, which cannot be repeated exactly and is removed.
    :param load_mark: highest order key before that load.
    """

    spark: SparkSession
    catalog: str
    target: Target
    table: IcebergTable | None = None
    carrier: Carrier | None = None
    recorded: Position | None = None
    unfinished_load: bool = False
    load_mark: str | None = None
    _appended: Position | None = None

    def append(self, batch: Batch, target: IcebergTable, carrier: Carrier | None) -> Applied | None:
        """Write the events of the target's batch, unless the log has them.

        :param carrier: the target's, before the batch.
        :return: None without events.
        :raises ConflictError: another run has changed the log's position.
        """
        if any(same_place(ahead, batch.position) for ahead in (self.recorded, self._appended) if ahead):
            return None
        if batch.rows is None and not batch.truncate_order:
            return None
        commit = replace(batch.commit, audit=None, enter_history=None)
        position = replace(batch.position, feed=self.target.feed)
        own = replace(batch, target=self.target, position=position, commit=commit)
        measured = None if batch.full_load else measure(batch)
        self.table, _ = tables.prepare(self.spark, self.catalog, self.table, own)
        self._take_back()
        own = without_erased(without_expired(own, self.table), target)
        before = self.carrier.position if self.carrier else None
        whole = batch.full_load and (carrier is None or batch.commit.replaces)
        mark = self._highest() if whole else (before.high_order if before else None)
        side_of = SideOf(target.uuid, str(carrier.snapshot_id) if carrier else None, whole, mark)
        started = self.carrier.text if self.carrier else None
        applied, position = append_events(self.table, own, measured, before, started, side_of)
        self.carrier = Carrier(applied.snapshot.id, position.encode())
        self._appended = batch.position
        return applied

    def note_commit(self, batch: Batch) -> None:
        """Record that the target has committed a batch, so that another batch may end at the same position."""
        self._appended = None
        if self.recorded is not None and same_place(self.recorded, batch.position):
            self.recorded = None

    def refresh(self) -> None:
        """Reload the table after expiry or erasure."""
        if self.table is not None:
            self.table.refresh()

    def raise_if_ahead(self, error: AuditError) -> None:
        """Raise a more specific AuditError if the log already has a batch that the checks now refuse."""
        if self.recorded is None and self._appended is None:
            return
        raise AuditError(
            f"{error.message} The history table {self.target.table} is ahead of {error.table}: it has a batch that "
            "passed its checks before but is not in the table.",
            table=error.table,
            hint=f"The batch is on the branch {names.AUDIT_BRANCH} and is read again: correct the checks, such as by "
            "severity 'warn' for one run, then run again.",
        ) from error

    def _highest(self) -> str | None:
        """Return the highest order key, including earlier full loads, which positions do not include."""
        assert self.table is not None
        row = self.spark.table(self.table.sql_name).select(F.max(ORDER_COLUMN)).first()
        return row[0] if row else None

    def _take_back(self) -> None:
        """Remove the rows of a full load that never reached the target."""
        if not self.unfinished_load:
            return
        assert self.table is not None
        where = "true" if self.load_mark is None else f"{ORDER_COLUMN} > :mark"
        self.spark.sql(f"DELETE FROM {self.table.sql_name} WHERE {where}", {"mark": self.load_mark or ""})
        self.table.refresh()
        self.unfinished_load = False


def open_history(
    spark: SparkSession, catalog: str, target: Target, table: IcebergTable | None, carrier: Carrier | None
) -> HistoryTable | None:
    """Return the change log of a target, or None if it has none; the target may have no table or carrier yet.

    :raises InputError: the table is not the target's change log.
    """
    if target.history_table is None:
        return None
    history = HistoryTable(spark, catalog, target.history())
    history.table = open_if_there(spark, catalog, target.history_table)
    if history.table is None:
        return history
    history.carrier = carrier_of(history.table.ancestors())
    if history.carrier is None:
        return history
    snapshot = history.table.snapshot(history.carrier.snapshot_id)
    assert snapshot is not None
    note = read_side_of(snapshot.summary)
    if note is None or history.carrier.position.feed != target.feed:
        feeder = "it is fed separately" if note is None else "another of its feeds writes to it"
        raise InputError(
            f"It is not the history table of {target.table}: {feeder}.",
            table=target.history_table,
            hint="Set another table as history_table.",
        )
    if table is not None and note.is_ahead_of(table.uuid, carrier):
        history.unfinished_load, history.load_mark = note.full_load, note.mark
        history.recorded = None if history.unfinished_load else history.carrier.position
    return history


def same_place(one: Position, other: Position) -> bool:
    """Check whether two positions are the same place of the same source."""
    return (one.source, one.identity, one.offsets) == (other.source, other.identity, other.offsets)
