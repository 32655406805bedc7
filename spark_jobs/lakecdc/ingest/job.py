"""The ingest job: every table of one source, round by round, one commit per table and round."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from lakecdc.contract.options import FeedingOptions, IngestOptions
from lakecdc.contract.report import TableReport
from lakecdc.iceberg.explain import explain
from lakecdc.iceberg.stages import described
from lakecdc.iceberg.table import carrier_of
from lakecdc.iceberg.threads import in_session
from lakecdc.ingest import dependents, quarantine, tables, tombstones, truncate
from lakecdc.ingest.apply import events, modes
from lakecdc.ingest.apply.history_table import HistoryTable, open_history
from lakecdc.ingest.apply.packed import untouched
from lakecdc.ingest.apply.packed_events import every_event
from lakecdc.ingest.apply.publish import Applied, FloorMovedError, following
from lakecdc.ingest.audit import Audit, AuditError
from lakecdc.ingest.change import IngestSource, TableBatch
from lakecdc.ingest.cleaning import cleaned, completed, opened, outside, set_apart
from lakecdc.ingest.completion import complete, complete_from_table
from lakecdc.ingest.discovery import expanded
from lakecdc.ingest.erased import rows_returned
from lakecdc.ingest.floor import held_against
from lakecdc.ingest.fold import FoldStats, fold, stats
from lakecdc.ingest.formats.changes import row_key
from lakecdc.ingest.lookup import drop_older
from lakecdc.ingest.misfits import without_misfits
from lakecdc.ingest.null_keys import null_key
from lakecdc.ingest.order import void_sql
from lakecdc.ingest.sources import open_source
from lakecdc.metadata import names
from lakecdc.metadata.positions import Carrier, Position, current_position, encode_idle
from lakecdc.runtime.failpoints import reach
from lakecdc.runtime.run import failure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakecdc.contract.spec import JobSpec
    from lakecdc.contract.target import Target
    from lakecdc.iceberg.table import IcebergTable

log = logging.getLogger(__name__)


@dataclass
class Feed:
    """One table's state during a run.

    :param table: None until the first batch creates it.
    :param carrier: the nearest ancestor that carries a position; None if it was never fed.
    :param position: where the table stands, quiet stretches included.
    :param history: the change log beside it, if it has one.
    :param truncated: order key of the last TRUNCATE that came before there was a table; None if there was none.
    :param reloaded: the next batch takes the place of all rows.
    :param waits: whether its quarantine holds messages; None as long as nobody has looked.
    :param spec: the run's.
    :param metrics: what goes into the report.
    """

    name: str
    table: IcebergTable | None = None
    carrier: Carrier | None = None
    position: Position | None = None
    snapshot_before: str | None = None
    history: HistoryTable | None = None
    truncated: str | None = None
    reloaded: bool = False
    waits: bool | None = None
    spec: JobSpec | None = None
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
    spec, shared = expanded(spark, spec)
    return feed_from(partial(open_source, spark, spec), spark, spec, shared)


def feed_from(
    opened: Callable[[], IngestSource], spark: SparkSession, spec: JobSpec, refused: Mapping[str, Exception]
) -> list[TableReport]:
    """Feed the spec's targets from a source until its rounds end.

    :param opened: opens the source, once a table is there that can be fed.
    :param spec: with the options of a job that feeds tables, and every target named.
    :param refused: targets that cannot be fed, each with the reason.
    :raises LakecdcError: see :func:`ingest`.
    """
    feeds = {target.table: _open(spark, spec, target, refused.get(target.table)) for target in spec.targets}
    sound = {name: feed for name, feed in feeds.items() if feed.error is None}
    if not sound:
        return [_report(feed) for feed in feeds.values()]
    source = opened()
    try:
        recorded = {
            f.name: f.history.recorded for f in sound.values() if f.history and f.history.recorded and not f.reloaded
        }
        source.start({name: feed.position for name, feed in sound.items()}, recorded)
        _run_rounds(spark, spec, source, feeds)
    finally:
        source.close()
    for name, error in {**source.refused, **source.given_up}.items():
        feeds[name].error = error if name in source.given_up else feeds[name].error or error
    for feed in sound.values():
        feed.metrics |= source.facts
    return [_report(feed) for feed in feeds.values()]


def _run_rounds(spark: SparkSession, spec: JobSpec, source: IngestSource, feeds: Mapping[str, Feed]) -> None:
    bound = getattr(spec.options, "max_batches", 0)
    for number, batches in enumerate(source.rounds(), 1):
        for batch, error in _each(spark, spec, feeds, batches):
            name = batch.target.table
            try:
                if error is None and not spec.options.dry_run:
                    source.applied(name, batch.position)
            except Exception as refused:
                error = refused
            if error is not None:
                feeds[name].error = error
                source.failed(name, error)
        if spec.options.dry_run:
            return
        source.finish_round()
        if number == bound:
            return


def _each(
    spark: SparkSession, spec: JobSpec, feeds: Mapping[str, Feed], batches: list[TableBatch]
) -> Iterator[tuple[TableBatch, Exception | None]]:
    """Feed the tables of a round, several at once; tell each as it is done."""

    def one(batch: TableBatch) -> Exception | None:
        try:
            with described(spark, batch.target.table, spec.job):
                _feed(spark, spec, feeds[batch.target.table], batch)
        except Exception as error:
            return error
        return None

    at_once = min(getattr(spec.options, "parallel_tables", 1), len(batches))
    if at_once <= 1:
        yield from ((batch, one(batch)) for batch in batches)
        return
    with ThreadPoolExecutor(at_once) as pool:
        running = {pool.submit(in_session(spark, one), batch): batch for batch in batches}
        for done in as_completed(running):
            yield running[done], done.result()


def _feed(spark: SparkSession, spec: JobSpec, feed: Feed, batch: TableBatch) -> None:
    """Take one batch into one table; events that it cannot take are set apart once one is met."""
    committed = feed.commits
    # values that do not fit hide events that a computed column cannot take, and these those that the filter cannot
    for last in (False, False, False, True):
        try:
            _take(spark, spec, feed, batch)
            return
        except Exception as error:
            rest = None if last or feed.commits > committed else _to_be_taken(spark, feed, batch, error)
            if rest is None:
                if no_key := null_key(batch, error):
                    raise no_key from error
                raise
            batch = rest


def _to_be_taken(spark: SparkSession, feed: Feed, batch: TableBatch, error: Exception) -> TableBatch | None:
    """What of a batch that failed can be taken after all; None if nothing changes that."""
    if not isinstance(error, FloorMovedError) or feed.table is None:
        return _without_misfits(spark, batch, error)
    log.info("%s: rows have expired or were erased meanwhile, the batch is held against what is left", feed.name)
    feed.table.refresh()
    if feed.history:
        feed.history.refresh()
    return batch


def _without_misfits(spark: SparkSession, batch: TableBatch, error: Exception) -> TableBatch | None:
    """Return a failed batch without the events that its columns or its cleaning cannot take; None if all can be."""
    told = explain(error)
    if told is None:
        return None
    fitting = without_misfits(batch) if told.bad_data else None
    if fitting is not None:
        return fitting
    found = set_apart(spark, batch)
    if found is None:
        return None
    rest, misfits = found
    reason = F.concat(F.lit("an expression of clean cannot take a value: "), F.col("misfit"))
    rejected, count = quarantine.of_events(rest, misfits, quarantine.CLEAN_RULE, reason)
    if rest.rejected is not None:
        rejected = rest.rejected.unionByName(rejected)
    return replace(rest, rejected=rejected, rejections=rest.rejections + count)


def _take(spark: SparkSession, spec: JobSpec, feed: Feed, batch: TableBatch) -> None:
    began = time.monotonic()
    assert isinstance(spec.options, FeedingOptions)
    audit = Audit.of(batch.target, show_values=spec.options.report_values)
    batch = _without_dependents(spark, spec, feed, replace(batch, replaces=feed.reloaded, audit=audit))
    quarantine.check_share(batch, spec.options)
    batch = cleaned(spark, held_against(batch, feed.table))
    feed.metrics.update(batch.facts)
    truncate.check(batch)
    tables.check_source(feed.table, batch)
    if feed.table is None:
        events.check(batch)
    # nothing has told the columns yet, so there is nothing to make a table of
    untold = batch.changes is None and feed.table is None
    if spec.options.dry_run:
        if not untold:
            tables.check_columns(batch)
            _count_only(feed, batch)
        return
    _quarantine(spark, spec, feed, batch)
    batch = replace(batch, truncate_order=max(filter(None, (feed.truncated, batch.truncate_order)), default=None))
    if untold:
        feed.truncated = batch.truncate_order
        return
    quiet = batch.changes is None and feed.carrier is not None and not batch.truncate_order
    if not quiet or (feed.table is not None and tables.lacks_columns(feed.table, batch)):
        feed.table, schema_changes = tables.prepare(spark, spec.catalog.name, feed.table, batch)
        if schema_changes:
            feed.metrics.setdefault("schema_changes", []).extend(schema_changes)
    if quiet:
        _keep_quiet(feed, batch)
        return
    try:
        _commit(feed, batch, getattr(spec.options, "max_delete_files", 0))
    finally:
        if batch.audit is not None:
            feed.metrics["checks"] = [verdict.report() for verdict in batch.audit.verdicts]
    if batch.floor is not None:
        feed.add(rows_below_floor=batch.floor.rows())
    feed.truncated = None
    feed.add(seconds=round(time.monotonic() - began, 3))


def _without_dependents(spark: SparkSession, spec: JobSpec, feed: Feed, batch: TableBatch) -> TableBatch:
    """Set apart what cannot be completed as long as messages before it are in quarantine."""
    assert isinstance(spec.options, FeedingOptions)
    if batch.changes is None or batch.full_load or not batch.target.keyed:
        return batch
    waiting = None
    if feed.waits is not False:
        name = quarantine.table_name(spec.options, batch.target.table)
        waiting = quarantine.waiting(spark, spec.catalog.name, name, batch.target.table)
        feed.waits = waiting is not None
    return dependents.set_apart(batch, feed.table, waiting)


def _quarantine(spark: SparkSession, spec: JobSpec, feed: Feed, batch: TableBatch) -> None:
    """Side table first: what cannot be applied is kept before the target moves on."""
    assert isinstance(spec.options, FeedingOptions)
    name = quarantine.table_name(spec.options, batch.target.table)
    if batch.full_load and feed.position is None:
        quarantine.forget_rows(spark, spec.catalog.name, name, batch.target.table)
    if batch.rejected is None:
        return
    kept = quarantine.create_quarantine(spark, spec.catalog.name, name)
    feed.add(quarantined=quarantine.keep(kept, batch, feed.table, getattr(spec.source, "format", None)))
    feed.metrics["quarantine_table"], feed.waits = name, True
    reach("after_quarantine")


def _commit(feed: Feed, batch: TableBatch, max_delete_files: int) -> None:
    assert feed.table is not None
    modes.check_debt(feed.table, batch, max_delete_files)
    with _kept(feed, batch) as kept:
        if not kept.target.keyed:
            _commit_events(feed, kept)
            return
        # a TRUNCATE that the table does not apply is an event of its history all the same
        rows = truncate.marked(feed.table, kept, feed.metrics)
        if feed.history is None:
            _commit_rows(feed, rows, max_delete_files)
            return
        try:
            _commit_rows(feed, replace(rows, enter_history=partial(_enter_history, feed, kept)), max_delete_files)
        except AuditError as error:
            feed.history.tell_if_ahead(error)
            raise
        feed.history.taken(kept)


def _commit_rows(feed: Feed, batch: TableBatch, max_delete_files: int) -> None:
    assert feed.table is not None
    mark = feed.position.high_order if feed.position else None
    if batch.full_load or batch.changes is None:
        # a full load reads every key once: folding it would shuffle and store the whole table for nothing
        position = following(batch.position, feed.position, truncate_order=batch.truncate_order)
        mode, choice = modes.choose(feed.table, batch, None, 0, max_delete_files, mark)
        feed.metrics.update(choice)
        _write(feed, batch, mode, batch.changes, 0, position)
        return
    with _measured(batch) as (folded, measured):
        _count_events(feed, measured)
        position = following(batch.position, feed.position, measured.high_order, truncate_order=batch.truncate_order)
        mode, choice = modes.choose(feed.table, batch, folded, measured.keys, max_delete_files, mark)
        feed.metrics.update(choice)
        batch, rows = _ready(feed, batch, folded, measured, mark, mode)
        _write(feed, batch, mode, rows, measured.keys, position)


@contextmanager
def _measured(batch: TableBatch) -> Iterator[tuple[DataFrame, FoldStats]]:
    """The folded batch and its facts; the tasks that have packed one have told them already."""
    packed = untouched(batch, batch.changes)
    if packed is not None and packed.folded and not batch.truncate_order:
        yield packed.changes, packed.stats
        return
    folded = _folded(batch).persist()
    filled = batch.packed.facts.filled if batch.folded and batch.packed else 0
    try:
        yield folded, replace(stats(folded), filled_keys=filled)
    finally:
        folded.unpersist()


def _commit_events(feed: Feed, batch: TableBatch) -> None:
    """Take one batch into a table that is only appended to."""
    assert feed.table is not None
    measured = None if batch.full_load else events.measure(batch)
    started = feed.carrier.text if feed.carrier else None
    applied, position = events.append_events(feed.table, batch, measured, feed.position, started)
    if measured:
        feed.add(**{f"events_{op}": n for op, n in measured.events.items()})
    _note(feed, applied, position)


def _enter_history(feed: Feed, batch: TableBatch) -> None:
    """Side table first: the batch's events go into the change log unless it holds them already."""
    assert feed.table is not None and feed.history is not None
    applied = feed.history.append(batch, feed.table, feed.carrier)
    if applied:
        feed.add(history_rows=applied.rows, history_data_files=applied.data_files, history_commits=1)


def _write(feed: Feed, batch: TableBatch, mode: str, rows: DataFrame | None, keys: int, position: Position) -> None:
    assert feed.table is not None
    started, before = feed.carrier.text if feed.carrier else None, feed.table.head()
    applied = modes.apply_rows(mode, feed.table, batch, rows, keys, position, started)
    _note(feed, applied, position)
    if batch.erasure is not None:
        feed.add(erased_rows_returned=rows_returned(feed.table, batch, rows, applied.files, before))


def _note(feed: Feed, applied: Applied, position: Position) -> None:
    feed.carrier, feed.position = Carrier(applied.snapshot.id, position.encode()), position
    feed.reloaded = False
    feed.commits += 1
    feed.add(
        data_files=applied.data_files,
        delete_files=applied.delete_files,
        rows_written=applied.rows,
        bytes_written=applied.bytes,
        retries=applied.retries,
    )
    if applied.engine:
        feed.metrics["full_load_engine"] = applied.engine


@contextmanager
def _kept(feed: Feed, batch: TableBatch) -> Iterator[TableBatch]:
    """The batch, its events kept while they are read more than once; a full load is too much to be kept."""
    read_once = batch.full_load or (batch.target.keyed and not feed.history)
    if batch.changes is None or read_once or every_event(batch) is not None:
        yield batch
        return
    changes = batch.changes.persist()
    try:
        yield replace(batch, changes=changes)
    finally:
        changes.unpersist()


def _folded(batch: TableBatch) -> DataFrame:
    assert batch.changes is not None
    changes = batch.changes
    if batch.truncate_order:
        changes = changes.where(f"NOT {void_sql('`order`', batch.truncate_order)}")
    return fold(changes)


def _ready(
    feed: Feed, batch: TableBatch, folded: DataFrame, measured: FoldStats, mark: str | None, mode: str
) -> tuple[TableBatch, DataFrame]:
    """The folded rows that may be applied: not older than the table's, without placeholders; and the batch of them."""
    assert feed.table is not None
    rows = folded
    suspects = older = deleted = 0
    truncated = feed.position.truncate_order if feed.position else None
    if batch.may_be_held and mark and measured.low_order and measured.low_order <= mark:
        # a MERGE judges the order by itself; only what is to be completed must not be older than the stored row
        if mode != "merge" or measured.open_keys:
            rows, suspects, older = drop_older(rows, feed.table, batch.key, mark)
        if not batch.in_order:
            rows, deleted = tombstones.drop_deleted(feed.table, rows, batch.key, mark, truncated)
        if truncated and measured.low_order < truncated:
            rows, gone = truncate.drop_emptied(rows, truncated)
            deleted += gone
        feed.add(suspects=suspects, older_dropped=older + deleted)
    if measured.open_keys:
        rows = outside(feed.table.spark, rows, batch)
    if measured.open_keys or measured.filled_keys:
        batch, rows = _completed(feed, batch, rows, measured, mark)
    were_open = opened(folded, batch) if measured.open_keys else set()
    rows = completed(feed.table.spark, rows, batch, were_open)
    if measured.events["d"] or (batch.target.clean and batch.target.clean.filter):
        if not batch.in_order:
            # what was left out may have been all of them; a filter and a full load that was overtaken make more
            some = bool(measured.deletes) and not older + deleted
            _remember_deletes(feed.table, batch, rows, mode, some=some)
        elif feed.waits:
            _remember_waited_for(feed, batch, rows)
    return batch, rows


def _remember_deletes(table: IcebergTable, batch: TableBatch, rows: DataFrame, mode: str, *, some: bool) -> None:
    """Remember the deletes of a batch that a late event may follow."""
    packed = untouched(batch, rows)
    if packed is None:
        tombstones.remember(table, rows, batch.key, some=some)
    elif mode != "upsert":
        # an upsert does so while it writes
        tombstones.remember_packed(table, packed, batch.key)


def _remember_waited_for(feed: Feed, batch: TableBatch, rows: DataFrame) -> None:
    """Remember deletes of rows of which events wait in the quarantine: a replay of these comes late."""
    assert feed.table is not None and feed.spec is not None and isinstance(feed.spec.options, FeedingOptions)
    name = quarantine.table_name(feed.spec.options, feed.name)
    waiting = quarantine.waiting(feed.table.spark, feed.spec.catalog.name, name, feed.name)
    if waiting is None:
        return
    packed = untouched(batch, rows)
    gone = rows if packed is None else packed.deletes
    known = waiting.select(F.col("row_key").alias("waits"))
    gone = gone.join(known, row_key("key", batch.key) == F.col("waits"), "left_semi")
    tombstones.remember(feed.table, gone, batch.key)


def _completed(
    feed: Feed, batch: TableBatch, rows: DataFrame, measured: FoldStats, mark: str | None
) -> tuple[TableBatch, DataFrame]:
    """Rows without placeholders. Where tasks hold the batch packed, only those that have some leave it."""
    assert feed.table is not None
    packed, lookups, done = untouched(batch, rows), measured.open_keys, not measured.open_keys
    if packed is not None and packed.folded and not done and (packed.is_new or not batch.may_be_held):
        found, count = complete_from_table(packed.opened, batch, feed.table)
        if done := count == lookups:
            packed = packed.with_completed(found)
            batch, rows = replace(batch, changes=packed.changes, packed=packed), packed.changes
    if not done:
        rows, lookups, lost = complete(rows, batch, feed.table, mark, measured.first_order)
        if lost is not None:
            _keep_lost(feed, batch, lost, sum(measured.events.values()))
    feed.add(completions=measured.open_keys + measured.filled_keys, completion_lookups=lookups)
    return batch, rows


def _keep_lost(feed: Feed, batch: TableBatch, lost: DataFrame, events: int) -> None:
    """Rows that cannot be completed are kept as well, and the others go on."""
    assert feed.table is not None and feed.spec is not None
    found, count = quarantine.of_lost(batch, lost)
    assert isinstance(feed.spec.options, FeedingOptions)
    every = replace(batch, rejected=found, rejections=batch.rejections + count)
    quarantine.check_share(every, feed.spec.options, events + batch.rejections - batch.unreadable)
    _quarantine(feed.table.spark, feed.spec, feed, replace(batch, rejected=found, rejections=count))


def _keep_quiet(feed: Feed, batch: TableBatch) -> None:
    """Nothing came for the table: note how far the source was read, without a snapshot."""
    assert feed.table is not None and feed.carrier is not None and feed.position is not None
    position = following(batch.position, feed.position)
    if position != feed.position:
        feed.table.update_properties({names.IDLE_POSITION: encode_idle(feed.carrier.snapshot_id, position)})
        feed.position = position


def _open(spark: SparkSession, spec: JobSpec, target: Target, refused: Exception | None) -> Feed:
    """Load what is known of a table; one that cannot be loaded has failed, and the others go on.

    :param refused: why it cannot be fed at all.
    """
    feed = Feed(target.table, spec=spec, error=refused)
    try:
        _load_state(spark, feed, spec, target)
    except Exception as error:
        feed.error = refused or error
    return feed


def _load_state(spark: SparkSession, feed: Feed, spec: JobSpec, target: Target) -> None:
    catalog = spec.catalog.name
    feed.table = tables.open_target(spark, catalog, feed.name)
    if feed.table is not None:
        head = feed.table.head()
        feed.snapshot_before = str(head.id) if head else None
        feed.carrier = carrier_of(feed.table.ancestors())
        feed.position = current_position(feed.carrier, feed.table.properties)
    feed.history = open_history(spark, catalog, target, feed.table, feed.carrier)
    if isinstance(spec.options, IngestOptions) and spec.options.reloads(feed.name):
        # the fence still compares with where the table stands
        feed.position, feed.reloaded = None, feed.table is not None


def _count_only(feed: Feed, batch: TableBatch) -> None:
    if batch.changes is None or batch.full_load:
        return
    if batch.target.keyed:
        _count_events(feed, stats(_folded(batch)))
    else:
        feed.add(**{f"events_{op}": n for op, n in events.measure(batch).events.items()})


def _count_events(feed: Feed, measured: FoldStats) -> None:
    feed.add(keys=measured.keys, **{f"events_{op}": n for op, n in measured.events.items()})


def _report(feed: Feed) -> TableReport:
    head = feed.table.head() if feed.table is not None else None
    position = feed.position
    feed.metrics["commits"] = feed.commits
    if seconds := feed.metrics.get("seconds"):
        feed.metrics["rows_per_second"] = round(feed.metrics.get("rows_written", 0) / seconds, 1)
    if position:
        feed.metrics |= {"position": position.offsets, "read_through": position.read_through}
    facts: dict[str, Any] = {
        "snapshot_before": feed.snapshot_before,
        "snapshot_after": str(head.id) if head else None,
        "metrics": feed.metrics,
    }
    if feed.error is not None:
        options = feed.spec.options if feed.spec else None
        values = isinstance(options, FeedingOptions) and options.report_values
        return _with_facts(failure(feed.name, feed.error, values=values), facts)
    if not feed.commits:
        return TableReport(feed.name, "nothing", _why_nothing(feed), **facts)
    return TableReport(feed.name, "done", **facts)


def _why_nothing(feed: Feed) -> str:
    reason = "the source has no changes for it"
    others = feed.metrics.get("other_tables")
    if feed.table is not None or not others:
        return reason
    return (
        f"{reason}, but for other tables: {', '.join(others)}; if one of them feeds it in spite of its name, "
        'that one has to be the "source_table" of its target'
    )


def _with_facts(report: TableReport, facts: dict[str, Any]) -> TableReport:
    return TableReport(**{**report.__dict__, **facts})
