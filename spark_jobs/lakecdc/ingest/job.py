"""The ingest job: every table of one source, round by round, one commit per table and round."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from functools import partial

from pyspark.sql import SparkSession

from lakecdc.contract.report import TableReport
from lakecdc.contract.rewriting import RewriteDeleteFilesOptions
from lakecdc.contract.spec import JobSpec
from lakecdc.iceberg.threads import described, in_session
from lakecdc.ingest.aggregating.table import refresh
from lakecdc.ingest.batch import Batch, IngestSource
from lakecdc.ingest.discovery import expand_targets
from lakecdc.ingest.sources import open_source
from lakecdc.ingest.table_feed import TableFeed, open_feed
from lakecdc.ingest.table_run import TableRun
from lakecdc.runtime.run import work_of

# limit for converting one table's equality deletes before it is fed; the rest waits for the next run
_MOST_SECONDS = 600.0


def ingest(spark: SparkSession, spec: JobSpec) -> list[TableReport]:
    """Feed the spec's targets from its source up to the source's end at the start.

    :raises LakecdcError: the source cannot be read; the failure of a single table is in its report.
    """
    spec, shared = expand_targets(spark, spec)
    reports = feed_tables(partial(open_source, spark, spec), spark, spec, shared)
    return [*reports, *(refresh(spark, spec, target) for target in spec.aggregated)]


def feed_tables(
    opened: Callable[[], IngestSource], spark: SparkSession, spec: JobSpec, refused: Mapping[str, Exception]
) -> list[TableReport]:
    """Feed the spec's targets from a source until its rounds end.

    :param opened: opens the source; called if any table can be fed.
    :param spec: with every target named.
    :param refused: targets that cannot be fed, with the reasons.
    :raises LakecdcError: see :func:`ingest`.
    """
    feeds = {target.table: open_feed(spark, spec, target, refused.get(target.table)) for target in spec.targets}
    sound = {name: feed for name, feed in feeds.items() if feed.error is None}
    if not sound:
        return [feed.report() for feed in feeds.values()]
    if not spec.options.dry_run:
        _convert_deletes(spark, spec, sound)
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
    return [feed.report() for feed in feeds.values()]


def _convert_deletes(spark: SparkSession, spec: JobSpec, feeds: Mapping[str, TableFeed]) -> None:
    """Convert the equality deletes of tables whose targets resolve deletes, before the tables are fed.

    They are older than the setting, or from other writers. A table whose conversion fails is fed anyway.
    """
    left = tuple(name for name, feed in feeds.items() if feed.deletes_left and not feed.reloaded)
    if not left:
        return
    options = RewriteDeleteFilesOptions(position_deletes="keep", max_runtime=_MOST_SECONDS)
    step = replace(spec, job="rewrite_delete_files", tables=left, options=options)
    for report in work_of(step.job)(spark, step):
        feeds[report.table].conversion = report
        feeds[report.table].existing.refresh()


def _run_rounds(spark: SparkSession, spec: JobSpec, source: IngestSource, feeds: Mapping[str, TableFeed]) -> None:
    bound = getattr(spec.options, "max_batches", 0)
    for number, batches in enumerate(source.rounds(), 1):
        for batch, error in _feed_each(spark, spec, feeds, batches):
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


def _feed_each(
    spark: SparkSession, spec: JobSpec, feeds: Mapping[str, TableFeed], batches: list[Batch]
) -> Iterator[tuple[Batch, Exception | None]]:
    """Feed the tables of a round, several at once; yield each batch when it is done, with its error."""

    def feed_one(batch: Batch) -> Exception | None:
        try:
            with described(spark, batch.target.table, spec.job):
                TableRun(spark, feeds[batch.target.table]).apply(batch)
        except Exception as error:
            return error
        return None

    at_once = min(getattr(spec.options, "parallel_tables", 1), len(batches))
    if at_once <= 1:
        yield from ((batch, feed_one(batch)) for batch in batches)
        return
    with ThreadPoolExecutor(at_once) as pool:
        running = {pool.submit(in_session(spark, feed_one), batch): batch for batch in batches}
        for done in as_completed(running):
            yield running[done], done.result()
