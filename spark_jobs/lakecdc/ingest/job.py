"""The ingest job: every table of one source, round by round, one commit per table and round."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakecdc.contract.report import TableReport
from lakecdc.ingest import tables, tombstones
from lakecdc.ingest.apply.upsert import upsert, with_high_order
from lakecdc.ingest.change import IngestSource, TableBatch
from lakecdc.ingest.completion import complete
from lakecdc.ingest.fold import FoldStats, fold, stats
from lakecdc.ingest.lookup import drop_older
from lakecdc.ingest.sources import open_source
from lakecdc.metadata import names
from lakecdc.metadata.positions import Carrier, Position, current_position, encode_idle, nearest_carrier
from lakecdc.run import failure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakecdc.contract.spec import JobSpec
    from lakecdc.iceberg.table import IcebergTable

log = logging.getLogger(__name__)


@dataclass
class Feed:
    """One table's state during a run.

    :param table: None until the first batch creates it.
    :param carrier: the nearest ancestor that carries a position; None if it was never fed.
    :param position: where the table stands, quiet stretches included.
    :param metrics: what goes into the report.
    """

    name: str
    table: IcebergTable | None = None
    carrier: Carrier | None = None
    position: Position | None = None
    snapshot_before: str | None = None
    error: Exception | None = None
    commits: int = 0
    metrics: dict[str, Any] = field(default_factory=dict)

    def add(self, **numbers: int | float) -> None:
        """Add to the metrics."""
        for key, value in numbers.items():
            self.metrics[key] = self.metrics.get(key, 0) + value


def ingest(spark: SparkSession, spec: JobSpec) -> list[TableReport]:
    """Feed the spec's targets from its source up to the source's end as seen at the start.

    :raises LakecdcError: if the source as a whole cannot be read; a single table's failure is in its report.
    """
    feeds = {target.table: _open(spark, spec, target.table) for target in spec.targets}
    source = open_source(spark, spec)
    try:
        source.start({name: feed.position for name, feed in feeds.items()}, {})
        _run_rounds(spark, spec, source, feeds)
    finally:
        source.close()
    for name, error in {**source.refused, **source.given_up}.items():
        feeds[name].error = error if name in source.given_up else feeds[name].error or error
    return [_report(feed) for feed in feeds.values()]


def _run_rounds(spark: SparkSession, spec: JobSpec, source: IngestSource, feeds: Mapping[str, Feed]) -> None:
    bound = getattr(spec.options, "max_batches", 0)
    for number, batches in enumerate(source.rounds(), 1):
        for batch in batches:
            feed = feeds[batch.target.table]
            try:
                _feed(spark, spec, feed, batch)
                if not spec.options.dry_run:
                    source.applied(feed.name, batch.position)
            except Exception as error:
                feed.error = error
                source.failed(feed.name, error)
        if spec.options.dry_run:
            return
        source.finish_round()
        if number == bound:
            return


def _feed(spark: SparkSession, spec: JobSpec, feed: Feed, batch: TableBatch) -> None:
    """Take one batch into one table."""
    began = time.monotonic()
    feed.metrics.update(batch.facts)
    if spec.options.dry_run:
        tables.check_columns(batch)
        if batch.changes is not None and not batch.full_load:
            _count_events(feed, stats(_folded(batch)))
        return
    if batch.changes is None and feed.table is None:
        # nothing has told the columns yet, so there is nothing to make a table of
        return
    quiet = batch.changes is None and feed.carrier is not None and not batch.truncate_order
    if not quiet or (feed.table is not None and tables.lacks_columns(feed.table, batch)):
        feed.table, schema_changes = tables.prepare(spark, spec.catalog.name, feed.table, batch)
        if schema_changes:
            feed.metrics.setdefault("schema_changes", []).extend(schema_changes)
    if quiet:
        _keep_quiet(feed, batch)
        return
    _commit(feed, batch)
    feed.add(seconds=round(time.monotonic() - began, 3))


def _commit(feed: Feed, batch: TableBatch) -> None:
    assert feed.table is not None
    mark = feed.position.high_order if feed.position else None
    if batch.full_load or batch.changes is None:
        # a full load reads every key once: folding it would shuffle and store the whole table for nothing
        _write(feed, batch, batch.changes, 0, with_high_order(batch.position, mark, batch.truncate_order))
        return
    folded = _folded(batch).persist()
    try:
        measured = stats(folded)
        _count_events(feed, measured)
        position = with_high_order(batch.position, mark, measured.high_order, batch.truncate_order)
        _write(feed, batch, _ready(feed, batch, folded, measured, mark), measured.keys, position)
    finally:
        folded.unpersist()


def _write(feed: Feed, batch: TableBatch, rows: DataFrame | None, keys: int, position: Position) -> None:
    assert feed.table is not None
    applied = upsert(feed.table, batch, rows, keys, position, feed.carrier.text if feed.carrier else None)
    feed.carrier, feed.position = Carrier(applied.snapshot.id, position.encode()), position
    feed.commits += 1
    feed.add(
        data_files=applied.data_files,
        delete_files=applied.delete_files,
        rows_written=applied.rows,
        bytes_written=applied.bytes,
    )


def _folded(batch: TableBatch) -> DataFrame:
    assert batch.changes is not None
    changes = batch.changes
    if batch.truncate_order:
        changes = changes.where(changes["order"] >= batch.truncate_order)
    return fold(changes)


def _ready(feed: Feed, batch: TableBatch, folded: DataFrame, measured: FoldStats, mark: str | None) -> DataFrame:
    """The folded rows that may be applied: not older than the table's, without placeholders."""
    assert feed.table is not None
    rows = folded
    if not batch.in_order and mark and measured.low_order and measured.low_order <= mark:
        rows, suspects, older = drop_older(rows, feed.table, batch.key, mark)
        rows, deleted = tombstones.drop_deleted(feed.table, rows, batch.key, mark)
        feed.add(suspects=suspects, older_dropped=older + deleted)
    if measured.open_keys:
        rows, lookups = complete(rows, batch, feed.table)
        feed.add(completions=measured.open_keys, completion_lookups=lookups)
    if not batch.in_order and measured.events["d"]:
        tombstones.remember(feed.table, rows, batch.key)
    return rows


def _keep_quiet(feed: Feed, batch: TableBatch) -> None:
    """Nothing came for the table: note how far the source was read, without a snapshot."""
    assert feed.table is not None and feed.carrier is not None and feed.position is not None
    position = with_high_order(batch.position, feed.position.high_order)
    if position != feed.position:
        feed.table.update_properties({names.IDLE_POSITION: encode_idle(feed.carrier.snapshot_id, position)})
        feed.position = position


def _open(spark: SparkSession, spec: JobSpec, name: str) -> Feed:
    feed = Feed(name, tables.open_target(spark, spec.catalog.name, name))
    if feed.table is not None:
        head = feed.table.head()
        feed.snapshot_before = str(head.id) if head else None
        feed.carrier = nearest_carrier((s.id, s.summary) for s in feed.table.ancestors())
        feed.position = current_position(feed.carrier, feed.table.properties)
    return feed


def _count_events(feed: Feed, measured: FoldStats) -> None:
    feed.add(keys=measured.keys, **{f"events_{op}": n for op, n in measured.events.items()})


def _report(feed: Feed) -> TableReport:
    head = feed.table.head() if feed.table is not None else None
    position = feed.position
    feed.metrics["commits"] = feed.commits
    if position:
        feed.metrics |= {"position": position.offsets, "read_through": position.read_through}
    facts: dict[str, Any] = {
        "snapshot_before": feed.snapshot_before,
        "snapshot_after": str(head.id) if head else None,
        "metrics": feed.metrics,
    }
    if feed.error is not None:
        return _with_facts(failure(feed.name, feed.error), facts)
    if not feed.commits:
        return TableReport(feed.name, "nothing", "the source has no changes for it", **facts)
    return TableReport(feed.name, "done", **facts)


def _with_facts(report: TableReport, facts: dict[str, Any]) -> TableReport:
    return TableReport(**{**report.__dict__, **facts})
