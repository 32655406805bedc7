"""Refresh an aggregated table from one snapshot of its history table to another, in one commit.

The table is a function of its history table, so repeats, delays and batches of events do not matter. Its position is
the snapshot from which it was aggregated. Values are added and subtracted if functions support it; groups of other
functions that lost a row are recomputed from all their rows.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakecdc import changes
from lakecdc.contract.errors import InputError
from lakecdc.contract.merging import Merge
from lakecdc.contract.past import RebuildKeysOptions
from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import JobSpec
from lakecdc.contract.target import Target
from lakecdc.iceberg import definition
from lakecdc.iceberg.table import IcebergTable, Snapshot, carrier_of, open_if_there
from lakecdc.iceberg.threads import described
from lakecdc.ingest import tables
from lakecdc.ingest.aggregating.groups import GroupMaker, Groups
from lakecdc.ingest.aggregating.plan import Plan
from lakecdc.ingest.aggregating.source_rows import SourceRows, UnknownValuesError
from lakecdc.ingest.aggregating.values import Values
from lakecdc.ingest.apply import modes
from lakecdc.ingest.apply.publish import StateMovedError
from lakecdc.ingest.audit import Audit
from lakecdc.ingest.batch import Batch, CommitPlan
from lakecdc.ingest.change import Column, Rows
from lakecdc.ingest.table_feed import open_feed
from lakecdc.local_relation import local_relation
from lakecdc.metadata import names
from lakecdc.metadata.exports import position_of
from lakecdc.metadata.floor import read_floor
from lakecdc.metadata.positions import current_position
from lakecdc.runtime import failpoints
from lakecdc.runtime.run import failure
from lakecdc.sql import parsed_type, quoted_column

log = logging.getLogger(__name__)


def refresh(spark: SparkSession, spec: JobSpec, target: Target) -> TableReport:
    """Refresh a target's table to the newest snapshot of its history table, and return the report."""
    try:
        with described(spark, target.table, spec.job):
            return AggregatedTable(spark, spec, target, Plan.of(target)).refresh()
    except Exception as error:
        return failure(target.table, error)


def rebuild_keys(table: IcebergTable, spec: JobSpec) -> TableReport:
    """Recompute some or all rows of an aggregated table from its history table, in one commit.

    :raises InputError: the table is not aggregated, or keys or rules do not fit.
    :raises ConflictError: ingestion committed to the table meanwhile.
    """
    options = spec.options_as(RebuildKeysOptions)
    keys, rules = options.keys.get(table.name, ()), options.rules.get(table.name, {})
    plan = Plan.read(table.refresh().properties)
    if plan is None:
        raise InputError("The table is not aggregated from a history table.", table=table.name, hint="Leave it out.")
    if keys and rules:
        raise InputError("New rules apply to all rows.", table=table.name, hint="Remove its keys.")
    # the kind that the table has already, so that readers do not get a new kind of deletes
    target = Target(table.name, deletes="equality" if modes.equality_delete_files(table) else "resolved")
    if rules:
        plan = replace(plan, merge=Merge("aggregate", columns=dict(rules), group_by=plan.merge.group_by))
        for message, hint in plan.merge.mistakes((), False):
            raise InputError(message, table=table.name, hint=hint)
    return AggregatedTable(table.spark, spec, target, plan).rebuild(keys)


class AggregatedTable:
    """An aggregated table and its history table during a run."""

    def __init__(self, spark: SparkSession, spec: JobSpec, target: Target, plan: Plan) -> None:
        self._spark, self._spec, self._plan = spark, spec, plan
        self._target = plan.table_target(target)
        # the table's property at the commit of its rows
        self._rules = plan.encode()
        self._feed = open_feed(spark, spec, self._target, None)
        if self._feed.error is not None:
            raise self._feed.error
        self._history = open_if_there(spark, spec.catalog.name, plan.history)

    def refresh(self) -> TableReport:
        """Refresh the table to the newest snapshot of its history table."""
        return self._run(self._changed)

    def rebuild(self, keys: Sequence[Mapping[str, Any]]) -> TableReport:
        """Recompute some rows from the events that the table is made from, or all rows from all events."""
        if keys:
            frame = self._keys(keys)
            return self._run(lambda history: self._chosen(history, frame))
        table = self._feed.existing
        if table.properties[names.AGGREGATED] == self._plan.encode():
            return self._run(self._everything)
        former = Plan.read_columns(table.properties)
        # ingestion refuses the table until its rows follow the new rules
        self._rules = self._plan.encode(former)

        def make(history: IcebergTable) -> Groups:
            self._refuse_other_types(table, former)
            return self._everything(history)

        report = self._run(make)
        if not self._spec.options.dry_run:
            present = {column.name for column in self._values.table_columns}
            if removed_columns := [name for name in table.refresh().column_names if name in {*former} - present]:
                definition.drop_columns(table, removed_columns)
            table.update_properties({names.AGGREGATED: self._plan.encode()})
        return report

    def _run(self, make: Callable[[IcebergTable], Groups | None]) -> TableReport:
        """Commit groups computed from the history table."""
        began, history, feed = time.monotonic(), self._history, self._feed
        if history is None or history.head() is None:
            return replace(feed.report(), reason=f"the history table {self._plan.history} has no events yet")
        if read_floor(history.properties, history.name) is not None:
            raise InputError(
                f"Old events were removed from the history table {history.name}, so sums would lack them.",
                table=feed.name,
                hint="Feed new tables, and do not expire partitions of their history tables.",
            )
        for last in (False, False, True):
            try:
                groups = make(history)
                if groups is not None and not self._spec.options.dry_run:
                    self._write(history, groups)
                elif not self._spec.options.dry_run and feed.position is not None:
                    feed.note_quiet(replace(feed.position, read_through=_read_through(history, history.head())))
                break
            except StateMovedError:
                if last:
                    raise
                log.info("%s: rows changed meanwhile, they are aggregated again", feed.name)
                feed.existing.refresh()
        feed.add(seconds=round(time.monotonic() - began, 3))
        return feed.report()

    def _changed(self, history: IcebergTable) -> Groups | None:
        """Return the groups that new events change; None without events."""
        self._refuse_other_rules()
        since, until = self._since(history), history.head()
        assert until is not None
        if since is not None and since.id == until.id:
            return None
        truncated = _truncated(history, self._plan)
        maker = self._maker(history, truncated)
        if since is None or truncated != self._truncated_before or self._needs_everything(maker, until):
            return self._everything(history)
        with changes.between(history, since, until, key=()) as rows:
            new = rows.localCheckpoint()
        is_gone = F.col(changes.CHANGE_TYPE) == "delete"
        count = new.agg(F.count(F.lit(1)), F.count_if(is_gone)).first()
        assert count is not None
        if count[1]:
            # erased, or rolled back
            return self._everything(history)
        self._feed.add(events=count[0])
        try:
            return maker.of_events(maker.source.events(new), self._feed.existing, since, until)
        except UnknownValuesError:
            # the events of an old key may have them
            return self._everything(history)

    def _chosen(self, history: IcebergTable, keys: DataFrame) -> Groups:
        """Return groups of some keys, from the events that the table is made from."""
        self._refuse_other_rules()
        maker, at = self._maker(history, self._truncated_before), self._made_of
        return maker.all_groups(at) if self._needs_everything(maker, at) else maker.of_keys(keys, at)

    def _needs_everything(self, maker: GroupMaker, at: Snapshot) -> bool:
        """Check whether others have changed rows of the table, or events cannot find rows of the source."""
        return self._is_altered() or maker.source.moves_leave_out_values(at.id)

    def _is_altered(self) -> bool:
        for snapshot in self._feed.existing.ancestors():
            if names.POSITIONS in snapshot.summary:
                return False
            if not snapshot.keeps_rows:
                return True
        return True

    def _refuse_other_rules(self) -> None:
        """Refuse a table with other rules, which another run may have set meanwhile."""
        table, rules = self._feed.table, self._plan.encode()
        known = table.properties.get(names.AGGREGATED) if table is not None else rules
        if known != rules:
            raise InputError(
                f"The table is aggregated by {known or 'other events'}, but its target has {rules}.",
                table=self._feed.name,
                hint="Run the job rebuild_keys with the new columns as options.rules, or feed new tables.",
            )

    def _refuse_other_types(self, table: IcebergTable, former: Mapping[str, str]) -> None:
        """Refuse new functions of columns whose values have another type than the table's."""
        present, new = tables.source_types(table, self._target), self._plan.merge.columns
        for column in self._values.table_columns:
            is_new = column.name in new and new[column.name] != former.get(column.name)
            if is_new and column.name in present and parsed_type(present[column.name]) != parsed_type(column.type):
                raise InputError(
                    f"The column {column.name} has the type {present[column.name]}, but {column.type} by the new "
                    "rules; nothing was written.",
                    table=table.name,
                    hint="Give the new column another name.",
                )

    def _everything(self, history: IcebergTable) -> Groups:
        head = history.head()
        assert head is not None
        return self._maker(history, _truncated(history, self._plan)).all_groups(head)

    @property
    def _truncated_before(self) -> str | None:
        return self._feed.position.truncate_order if self._feed.position else None

    def _since(self, history: IcebergTable) -> Snapshot | None:
        """Return the history table's snapshot from which the table was aggregated; None if it no longer exists."""
        position = self._feed.position
        if position is not None and position.identity != history.uuid:
            raise InputError(
                f"The table was aggregated from another history table than {history.name}.",
                table=self._feed.name,
                hint=f"If {history.name} has all events, run the job rebuild_keys for all rows.",
            )
        return history.snapshot(int(position.offsets["snapshot"])) if position is not None else None

    @property
    def _made_of(self) -> Snapshot:
        assert self._history is not None
        since = self._since(self._history)
        if since is None:
            raise InputError(
                f"The snapshot of the history table {self._history.name} from which the table was aggregated has "
                "expired.",
                table=self._feed.name,
                hint="Rebuild all rows: remove options.keys.",
            )
        return since

    def _maker(self, history: IcebergTable, truncated: str | None) -> GroupMaker:
        values = self._values
        used = dict.fromkeys([*self._plan.key, *self._plan.merge.group_by])
        used |= dict.fromkeys(column.of for column in values.columns if column.of != "*")
        columns = tuple(Column(name, values.types[name]) for name in used)
        return GroupMaker(SourceRows(history, columns, self._plan.key, truncated), values)

    @cached_property
    def _values(self) -> Values:
        """Return the columns of the table; refuse functions of columns that are missing or do not fit."""
        assert self._history is not None
        types, merge = tables.source_types(self._history, replace(self._target, mode="history")), self._plan.merge
        named = [*self._plan.key, *merge.group_by, *(c.of for c in merge.aggregates if c.of != "*")]
        if missing := [name for name in dict.fromkeys(named) if name not in types]:
            raise InputError(
                f"merge needs {', '.join(missing)}, which the history table {self._plan.history} lacks.",
                table=self._feed.name,
                hint='Correct key, group_by and columns. To keep the name of a renamed source column, use "clean": '
                '{"rename": …}.',
            )
        for name, why in merge.misfits(types):
            raise InputError(f"The function of {name!r} in merge does not fit: {why}.", table=self._feed.name)
        return Values(tuple(Column(name, types[name], True) for name in merge.group_by), merge.aggregates, types)

    def _keys(self, keys: Sequence[Mapping[str, Any]]) -> DataFrame:
        """Return given keys as a frame; refuse keys that do not fit the columns."""
        group_by = self._values.group_by
        for key in keys:
            if {*key} != {column.name for column in group_by} or None in key.values():
                raise InputError(
                    f"The key {dict(key)} does not have the columns {', '.join(c.name for c in group_by)}.",
                    table=self._feed.name,
                    hint="Give a value for each of them.",
                )
        texts = [tuple(str(key[column.name]) for column in group_by) for key in keys]
        schema = ", ".join(f"{quoted_column(column.name)} string" for column in group_by)
        frame = local_relation(self._spark, texts, schema)
        return frame.select(*[F.col(quoted_column(c.name)).cast(c.type) for c in group_by]).distinct().localCheckpoint()

    def _write(self, history: IcebergTable, groups: Groups) -> None:
        """Commit the values of groups, and the snapshot from which they were aggregated."""
        feed, options, columns = self._feed, self._spec.options, self._values.table_columns
        key = tuple(column.name for column in self._values.group_by)
        persisted = groups.values.persist()
        try:
            count = replace(groups, values=persisted).check(feed.name, self._values.group)
            if self._rules != self._plan.encode():
                feed.existing.update_properties({names.AGGREGATED: self._rules})
            of_key = [F.col(column).alias(name) for name, column in self._values.group.items()]
            row = F.struct(*of_key, *[F.col("made")[c.name].alias(c.name) for c in columns[len(key) :]])
            rows = persisted.select(
                F.struct(*of_key).alias("key"),
                F.when(groups.has_rows(), "u").otherwise("d").alias("op"),
                row.alias("row"),
                "order",
                "source_time",
                # the table may have each group
                F.lit(0).alias("n_c"),
                F.lit(2).alias("n_d"),
            )
            through = _read_through(history, groups.at)
            position = position_of(history.name, history.uuid, groups.at.id, through)
            truncated = _truncated(history, self._plan) if groups.at == history.head() else self._truncated_before
            position = replace(position, truncate_order=truncated)
            audit = Audit.of(self._target, show_values=getattr(options, "report_values", False))
            commit = CommitPlan(replaces=groups.everything, state=groups.state, audit=audit, rules=self._rules)
            changed = Rows(rows, folded=not groups.everything, keys=count) if count else None
            batch = Batch(self._target, key, columns, changed, position, full_load=groups.everything, commit=commit)
            feed.table, _ = tables.prepare(self._spark, self._spec.catalog.name, feed.table, batch)
            modes.check_debt(feed.table, batch, getattr(options, "max_delete_files", 0))
            failpoints.reach("before_aggregate")
            feed.note(modes.apply_rows("upsert", feed.table, batch, position, feed.started_from), position)
            feed.add(groups=count, groups_built_anew=groups.built_anew)
        finally:
            persisted.unpersist()


def _read_through(history: IcebergTable, at: Snapshot | None) -> str | None:
    """Return the source time up to which a snapshot of the history table has every event."""
    carrier = carrier_of(history.ancestors_of(at)) if at is not None else None
    position = current_position(carrier, history.properties)
    return position.read_through if position else None


def _truncated(history: IcebergTable, plan: Plan) -> str | None:
    """Return the order key of the last TRUNCATE that removed rows, if any."""
    carrier = carrier_of(history.ancestors())
    return carrier.position.truncate_order if carrier and plan.truncates else None
