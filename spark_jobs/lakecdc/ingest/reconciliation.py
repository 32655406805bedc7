"""Select the folded rows to apply: complete, and not older than the table's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakecdc.contract.target import ORDER_COLUMN, TIME_COLUMN
from lakecdc.iceberg.fence import KnownState
from lakecdc.iceberg.table import IcebergTable
from lakecdc.ingest import tombstones
from lakecdc.ingest.batch import Batch
from lakecdc.ingest.change import Rows
from lakecdc.ingest.cleaning import completed, opened, outside
from lakecdc.ingest.completion import complete, complete_from_table
from lakecdc.ingest.erased import erased_keys
from lakecdc.ingest.fold import Stats, is_suspect, may_have_been
from lakecdc.ingest.formats.changes import row_key
from lakecdc.ingest.lookup import read_keys
from lakecdc.ingest.table_feed import TableFeed
from lakecdc.key_search.places import Places
from lakecdc.model.order import void_sql
from lakecdc.sql import quoted_column


@dataclass
class Reconciliation:
    """A folded batch compared with its table.

    :param batch: cleaned.
    :param measured: facts of the folded batch.
    :param mark: highest order key that the table has applied; None if it was never fed.
    :param mode: how the rows are written.
    :param keep_lost: quarantines rows that cannot be completed, given the batch, these rows and the number of events.
    :ivar state: state of the table from which rows were completed; None if none was.
    :ivar places: places of the table's rows of the keys looked up; None if unknown.
    """

    feed: TableFeed
    batch: Batch
    measured: Stats
    mark: str | None
    mode: str
    keep_lost: Callable[[Batch, DataFrame, int], None]
    state: KnownState | None = field(default=None, init=False)
    places: Places | None = field(default=None, init=False)

    def reconcile(self, folded: Rows) -> Rows:
        """Return the folded rows to apply: not older than the table's, without placeholders."""
        batch, measured, table = self.batch, self.measured, self.feed.existing
        rows, dropped = self._without_stale(folded)
        if measured.open_keys:
            rows = rows.with_frame(outside(table.spark, rows.frame, batch))
        if measured.open_keys or measured.filled_keys:
            rows = self._complete(rows)
        were_open = opened(folded.frame, batch) if measured.open_keys else set()
        rows = rows.with_frame(completed(table.spark, rows.frame, batch, were_open))
        if measured.events["d"] or (batch.target.clean and batch.target.clean.filter):
            if not batch.source.in_order:
                # dropped rows may include all deletes; a filter and an overtaken full load add some
                self._remember_deletes(rows, some=bool(measured.deletes) and not dropped)
            elif self.feed.waits:
                remember_waited_for(self.feed, self.batch, rows)
        return rows

    def _without_stale(self, folded: Rows) -> tuple[Rows, int]:
        """Drop rows that are older than the table's, and count them."""
        feed, batch, measured = self.feed, self.batch, self.measured
        truncated = feed.position.truncate_order if feed.position else None
        # a MERGE compares order keys itself; only rows to complete must not be older than the stored row
        rows = self.mode != "merge" or bool(measured.open_keys)
        compared = Compared(self.mark, measured.low_order, truncated, rows=rows, deletes=not batch.source.in_order)
        if not batch.may_be_held or not compared.may_be_newer:
            return folded, 0
        current = drop_stale(folded.frame, feed.existing, batch.key, compared)
        feed.add(suspects=current.suspects, older_dropped=current.dropped)
        return folded.with_frame(current.frame) if current.dropped else folded, current.dropped

    def _complete(self, rows: Rows) -> Rows:
        """Fill placeholders, only from the table if the events cannot."""
        batch, measured, table = self.batch, self.measured, self.feed.existing
        lookups, done = measured.open_keys, not measured.open_keys
        state, beside = state_of(table), None
        if batch.target.deletes == "resolved" and self.mode == "upsert":
            # the commit needs the places of these keys too
            beside = rows.frame.where(may_have_been()).select("key.*")
        opened_rows = None if done else rows.for_table_alone(may_be_held=batch.may_be_held)
        if opened_rows is not None:
            filled = complete_from_table(opened_rows, batch, table, beside)
            if done := filled.looked_up == lookups:
                rows, self.places = rows.with_completed(filled.rows), filled.places
        if not done:
            whole = complete(rows.frame, batch, table, self.mark, measured.first_order, beside)
            rows, lookups, self.places = rows.with_frame(whole.rows), whole.looked_up, whole.places
            if whole.left_out is not None:
                self.keep_lost(batch, whole.left_out, sum(measured.events.values()))
        self.state = state if lookups else None
        self.feed.add(completions=measured.open_keys + measured.filled_keys, completion_lookups=lookups)
        return rows

    def _remember_deletes(self, rows: Rows, *, some: bool) -> None:
        """Remember deletes that a late event may follow; ``some``: there certainly are deletes."""
        # an upsert does this while it writes, if it knows of deletes without a Spark job
        if self.mode != "upsert" or rows.stats is None:
            tombstones.remember(self.feed.existing, rows, self.batch.key, some=some)


def state_of(table: IcebergTable) -> KnownState:
    """Return the state of a table from which rows are about to be read."""
    head = table.head()
    return KnownState(head.id if head else None)


def remember_waited_for(feed: TableFeed, batch: Batch, rows: Rows) -> None:
    """Remember deletes of rows with events in quarantine, whose replay comes late."""
    waiting = feed.waiting(feed.existing.spark)
    if waiting is None:
        return
    known = waiting.select(F.col("row_key").alias("waits"))
    deleted = rows.deletes.join(known, row_key("key", batch.key) == F.col("waits"), "left_semi")
    tombstones.append_deletes(feed.existing, deleted, batch.key)


@dataclass(frozen=True)
class Compared:
    """The state with which folded rows are compared.

    :param mark: highest order key that the table has applied.
    :param lowest: lowest order key of the rows; None without any.
    :param truncated: order key of the last TRUNCATE applied, if any.
    :param rows: compare with the table's rows.
    :param deletes: compare with remembered deletes and erasures.
    :param until: ignore deletes with a later source time, but not those without one; default: ignore none.
    """

    mark: str | None
    lowest: str | None
    truncated: str | None = None
    rows: bool = True
    deletes: bool = True
    until: Column | None = None

    @property
    def may_be_newer(self) -> bool:
        """Check whether the table may have a newer state of one of the rows."""
        return self.mark is not None and self.lowest is not None and self.lowest <= self.mark


@dataclass(frozen=True)
class CurrentRows:
    """Rows that are not stale, and the numbers of compared and dropped rows; the given frame if none was dropped."""

    frame: DataFrame
    suspects: int = 0
    dropped: int = 0


def drop_stale(folded: DataFrame, table: IcebergTable, key: Sequence[str], compared: Compared) -> CurrentRows:
    """Drop rows that are older than the table's state.

    Only *suspects* are looked up: rows that are late in their own source partition and whose order key is not above the
    highest one applied so far. A row with the stored order key is not older: applying it again changes nothing.

    :param folded: ``key, op, order`` and more, one row per key.
    """
    if compared.mark is None or compared.lowest is None or compared.lowest > compared.mark:
        return CurrentRows(folded)
    current = _drop_suspects(folded, table, key, compared, compared.mark)
    if compared.truncated is None or compared.lowest >= compared.truncated:
        return current
    older = F.expr(void_sql("`order`", compared.truncated))
    emptied = current.frame.where(older).count()
    return CurrentRows(current.frame.where(~older), current.suspects, current.dropped + emptied) if emptied else current


def _drop_suspects(
    folded: DataFrame, table: IcebergTable, key: Sequence[str], compared: Compared, mark: str
) -> CurrentRows:
    if not compared.rows and not compared.deletes:
        return CurrentRows(folded)
    suspects = folded.where(is_suspect(mark)).select("op", "key", "order").localCheckpoint()
    keys, count = suspects.select("key.*"), suspects.count()
    if not count:
        return CurrentRows(folded)
    voids = []
    if compared.rows:
        voids.append(_older(suspects, read_keys(table, keys, key, columns=[ORDER_COLUMN]), key))
    remembered = tombstones.open_remembered(table) if compared.deletes else None
    if remembered is not None:
        deletes = read_keys(remembered, keys, key, columns=[ORDER_COLUMN, TIME_COLUMN])
        deletes = deletes.where(F.col(ORDER_COLUMN) >= (compared.truncated or ""))
        if compared.until is not None:
            deletes = deletes.where(F.coalesce(F.col(TIME_COLUMN) <= compared.until, F.lit(True)))
        voids.append(_older(suspects.where("op != 'd'"), deletes, key))
    # late deletes too, which would record the key
    if compared.deletes and (erased := erased_keys(table, suspects, key)) is not None:
        voids.append(erased)
    looked_up = count if compared.rows else 0
    if not voids:
        return CurrentRows(folded, looked_up)
    void = reduce(DataFrame.union, voids).distinct().localCheckpoint()
    dropped = void.count()
    frame = folded.join(F.broadcast(void), "key", "left_anti") if dropped else folded
    return CurrentRows(frame, looked_up, dropped)


def _older(suspects: DataFrame, stored: DataFrame, key: Sequence[str]) -> DataFrame:
    """Return the keys of suspects below the stored order key: ``key``."""
    of_key = F.struct(*[quoted_column(k) for k in key]).alias("key")
    orders = stored.select(of_key, F.col(ORDER_COLUMN).alias("held"))
    return orders.join(F.broadcast(suspects), "key").where(F.col("held") > F.col("order")).select("key")
