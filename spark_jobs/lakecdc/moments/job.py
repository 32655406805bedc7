"""Restore tables as their source had them at one moment: as branches or separate tables, or as rows to read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from lakecdc.contract.errors import ConflictError, InputError
from lakecdc.contract.fields import parse_moment
from lakecdc.contract.past import RestoreMomentOptions
from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import JobSpec
from lakecdc.contract.target import ORDER_COLUMN
from lakecdc.iceberg import scratch
from lakecdc.iceberg.commit import RowChanges, commit_to_branch
from lakecdc.iceberg.fence import KnownHead, PositionFence
from lakecdc.iceberg.refs import Ref, change_refs, put_refs, read_refs
from lakecdc.iceberg.staging import discard
from lakecdc.iceberg.table import Branch, IcebergTable, Snapshot, carrier_of
from lakecdc.iceberg.threads import described
from lakecdc.ingest.api import (
    Batch,
    PastBranch,
    Staged,
    apply_onto_past,
    clean_for_table,
    fold_onto_past,
    table_columns,
)
from lakecdc.key_search.bounded import bounded_reads
from lakecdc.key_search.resolve import Resolution
from lakecdc.maintain.reports import DRY_RUN, ends
from lakecdc.metadata import names
from lakecdc.moments.events import batch_of
from lakecdc.moments.stretch import Stretch, micros, stretch_to
from lakecdc.moments.table import JOB, MomentTable
from lakecdc.object_store.open_catalog import served
from lakecdc.runtime.failpoints import reach
from lakecdc.runtime.run import each_table, failure
from lakecdc.sql import quoted_column


def restore_moment(spark: SparkSession, spec: JobSpec) -> list[TableReport]:
    """Restore or drop a moment of the spec's tables: of all or none, because all are checked before the first write.

    :raises SpecError: no moment is given.
    """
    options = spec.options_as(RestoreMomentOptions)
    moment, branch = options.restored()
    if options.action == "drop":
        return _drop(spark, spec, branch)
    shown = Shown(branch, options.keep_for)
    planned: dict[str, _Plan] = {}
    refused: dict[str, TableReport] = {}
    for name in dict.fromkeys(spec.tables):
        try:
            quarantine = names.quarantine_of(name, options.quarantine_table)
            table = IcebergTable(spark, spec.catalog.name, name)
            with described(spark, name, spec.job):
                stretch = stretch_to(table, options.history_tables.get(name), moment, quarantine)
                into = MomentTable(table, options.into[name]) if name in options.into else None
                before = into.note if into else restored_before(stretch, shown)
                planned[name] = _Plan(stretch, *batch_of(stretch), into, before)
        except Exception as error:
            refused[name] = failure(name, error)
    if refused:
        reason = f"nothing was restored, because of {', '.join(refused)}"
        return [refused.get(name) or TableReport(name, "skipped", reason) for name in dict.fromkeys(spec.tables)]
    return _shown_together(spark, spec, shown, each_table(partial(_restore, planned, shown))(spark, spec))


def _shown_together(spark: SparkSession, spec: JobSpec, shown: Shown, reports: list[TableReport]) -> list[TableReport]:
    """Make an object-store catalog show the restored branches of all tables at once, as ``<table>@<branch>``."""
    catalog, branches = served(spec.catalog.name), [each for each in reports if "branch" in each.metrics]
    complete = all(each.outcome in ("done", "nothing") for each in reports)
    if catalog is None or spec.options.dry_run or not complete or not branches:
        return reports
    tags = {each.table: read_refs(IcebergTable(spark, spec.catalog.name, each.table))[shown.tag] for each in branches}
    catalog.write_moment(shown.branch, {name: tag.snapshot_id for name, tag in tags.items()})
    for each in branches:
        each.metrics["as_table"] = f"{each.table}@{shown.branch}"
    return reports


def _drop(spark: SparkSession, spec: JobSpec, moment: str) -> list[TableReport]:
    """Drop a moment's branch and tag, so that expiry may remove their snapshots; keep a branch that users wrote to."""

    def drop(table: IcebergTable, spec: JobSpec) -> TableReport:
        head, refs = table.head(), read_refs(table.refresh())
        names_of_refs = names.refs_of_moment(moment, {name: ref.snapshot_id for name, ref in refs.items()})
        report = TableReport(table.name, "nothing", **ends(head, head), metrics={"refs_dropped": sorted(names_of_refs)})
        if not names_of_refs:
            return replace(report, reason=f"it has no moment {moment}")
        if spec.options.dry_run:
            return replace(report, reason=DRY_RUN)
        change_refs(table, dict.fromkeys(names_of_refs))
        return replace(report, outcome="done")

    reports = each_table(drop)(spark, spec)
    catalog = served(spec.catalog.name)
    if catalog is not None and not spec.options.dry_run:
        catalog.tidy_moment(moment)
    return reports


@dataclass(frozen=True)
class _Plan:
    """Plan for one table: the events missing from the base, and the moment already restored."""

    stretch: Stretch
    batch: Batch
    events: int
    into: MomentTable | None
    before: str | None


def _restore(planned: Mapping[str, _Plan], shown: Shown, table: IcebergTable, spec: JobSpec) -> TableReport:
    plan, head = planned[table.name], table.head()
    stretch = plan.stretch
    moment = {"moment": stretch.moment.isoformat(), "base": str(stretch.base.id), "events": plan.events}
    # equal rows have equal notes
    note = json.dumps(moment, sort_keys=True)
    metrics: dict[str, Any] = {
        "base_snapshot": str(stretch.base.id),
        "base_read_through": stretch.position.read_through,
        "events_restored": plan.events,
        **({"into": plan.into.name} if plan.into else {"branch": shown.branch, "tag": shown.tag}),
    }
    # main does not change
    report = TableReport(table.name, "nothing", **ends(head, head), metrics=metrics)
    if spec.options.dry_run:
        return replace(report, reason=DRY_RUN)
    if plan.before == note:
        return replace(report, reason="the moment has been restored already")
    if plan.into is None:
        metrics["snapshot"] = str(restore(stretch, plan.batch, note, shown).id)
    else:
        with rows_of(stretch, plan.batch) as rows:
            metrics |= plan.into.write(rows, stretch, note)
    return replace(report, outcome="done")


@dataclass(frozen=True)
class Shown:
    """Branch that shows a moment, and the seconds to keep it."""

    branch: str
    keep_for: float

    @property
    def tag(self) -> str:
        """Return the name of the tag, which stays in place when users write to the branch."""
        return names.moment_tag(self.branch)


def restore(stretch: Stretch, batch: Batch, note: str, shown: Shown) -> Snapshot:
    """Create branch and tag, and return their snapshot.

    :param batch: the events missing from the base.
    :raises InputError: an event omits a value that is recorded nowhere.
    :raises ConflictError: expiry removed the base meanwhile.
    """
    batch = clean_for_table(stretch.table, batch)
    of_branch = scratch.branch(stretch.table, stretch.base, names.MOMENT_BRANCH_PREFIX)
    with of_branch as name, _past(stretch, name) as past:
        if condition := _removed_condition(batch):
            past.branch.spark.sql(f"DELETE FROM {scratch.sql_name(past.branch, name)} WHERE {condition}")
            past.branch.refresh()
        staged = Staged()
        # resolved deletes keep a moment readable for every engine, even if the table has equality deletes
        resolution = Resolution(past.branch, staged.delete_files)
        try:
            with fold_onto_past(past, batch) as newest:
                if newest is not None:
                    apply_onto_past(past, batch, newest, name, staged)
            base = past.branch.refresh().head()
            resolution.search(base)
            summary = {names.JOB: JOB, names.READ_THROUGH: stretch.moment.isoformat(), names.MOMENT: note}
            reach("before_commit")
            snapshot = _publish(stretch, name, resolution.changes(staged.data_files, summary), base, shown)
        except (InputError, ConflictError):
            # after any other error the commit may have succeeded
            discard(stretch.table, staged.data_files)
            resolution.discard(committed=False)
            raise
        resolution.discard(committed=True)
    reach("after_commit")
    return snapshot


@contextmanager
def rows_of(stretch: Stretch, batch: Batch) -> Iterator[DataFrame]:
    """Read the rows of the moment with the table's columns; valid inside the context."""
    batch = clean_for_table(stretch.table, batch)
    # the branch keeps the base from expiring
    of_branch = scratch.branch(stretch.table, stretch.base, names.MOMENT_BRANCH_PREFIX)
    with of_branch as name, _past(stretch, name) as past:
        condition = _removed_condition(batch)
        rows = past.branch.read(where=f"NOT ({condition})" if condition else "true")
        with fold_onto_past(past, batch) as newest:
            if newest is None:
                yield rows
                return
            columns = [quoted_column(column) for column in rows.columns]
            untouched = rows.join(newest.frame.select("key.*"), list(batch.key), "left_anti").select(*columns)
            yield untouched.unionByName(newest.frame.where("op != 'd'").select(*table_columns(past.branch, batch)))


def restored_before(stretch: Stretch, shown: Shown) -> str | None:
    """Return the note of the moment on the branch, if it exists; refuse a branch that shows something else."""
    refs = read_refs(stretch.table)
    branch, tag = refs.get(shown.branch), refs.get(shown.tag)
    if branch is None and tag is None:
        return None
    head = stretch.table.head(shown.branch)
    note = head.summary.get(names.MOMENT) if head else None
    same = note is not None and json.loads(note)["moment"] == stretch.moment.isoformat()
    if not same or not branch or not tag or branch.snapshot_id != tag.snapshot_id:
        raise InputError(
            f"The branch or tag {shown.branch!r} already exists and is not this moment as restored.",
            table=stretch.table.name,
            hint="Give options.branch another name, or drop branch and tag.",
        )
    return note


def _removed_condition(batch: Batch) -> str | None:
    """Return a condition, never null, for rows that a TRUNCATE or expiry has removed since."""
    # rows without an order key are older than any event
    older = f"coalesce({ORDER_COLUMN}, '') < '{batch.truncate_order}'" if batch.truncate_order else None
    below = batch.commit.floor.condition(c.name for c in batch.columns) if batch.commit.floor else None
    return " OR ".join(filter(None, (older, below))) or None


@contextmanager
def _past(stretch: Stretch, name: str) -> Iterator[PastBranch]:
    with bounded_reads(Branch(stretch.table, name)) as branch:
        yield PastBranch(branch, stretch.position, micros(stretch.moment))


def _publish(stretch: Stretch, name: str, changes: RowChanges, base: Snapshot | None, shown: Shown) -> Snapshot:
    """Commit changes to the head of a branch, and set branch and tag in the same metadata commit."""
    table = stretch.table.refresh()
    max_age_ms = int(shown.keep_for * 1000)

    def show(transaction: Any) -> None:
        tip = int(transaction.table().snapshot(name).snapshotId())
        refs = {shown.branch: Ref(tip, "branch", max_age_ms), shown.tag: Ref(tip, "tag", max_age_ms)}
        put_refs(table, refs, owner=transaction)

    carrier = carrier_of(table.ancestors_of(stretch.base))
    fence = PositionFence(carrier.text if carrier else None)
    fence.head = KnownHead(base.id if base else None, truncated=False)
    return commit_to_branch(table, changes, fence, name, show, shown.branch)


def read(
    spark: SparkSession, table: str, *, moment: str | datetime, history_table: str, quarantine_table: str | None = None
) -> DataFrame:
    """Read a table as its source had it at a moment.

    A temporary branch protects the read snapshot from expiry; nothing else is written.

    :param table: catalog, namespace and name, such as ``lake.shop.orders``.
    :param moment: at the source, with a time zone; includes what the source had committed until then.
    :param history_table: of the table, in the same catalog, such as ``lake.shop.orders_history``.
    :param quarantine_table: namespace and name, if ingestion uses one.
    :return: the table's current columns, checkpointed by Spark.
    :raises InputError: the moment cannot be restored with certainty; the message says why.
    """
    catalog, _, name = table.partition(".")
    of_history, _, history = history_table.partition(".")
    if of_history != catalog:
        raise InputError(
            f"The history table {history_table} is not in the table's catalog.",
            table=name,
            hint=f"Name it with its catalog, as {catalog}.namespace.name.",
        )
    text = moment.isoformat() if isinstance(moment, datetime) else moment
    at = parse_moment(text, "moment").astimezone(UTC)
    stretch = stretch_to(IcebergTable(spark, catalog, name), history, at, names.quarantine_of(name, quarantine_table))
    batch, _ = batch_of(stretch)
    with rows_of(stretch, batch) as rows:
        return rows.localCheckpoint()
