"""Bring an aggregated table from one snapshot of its history table to another, in one commit.

The table is a function of its history table, so that it does not matter how often, how late and in which batches events
have come. Its position is the snapshot that it was made of. Values are added and taken back where functions can do
that; groups that lost a row of another function are made anew, of all their rows.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from lakecdc import changes
from lakecdc.contract.aggregating import ROWS_COLUMN
from lakecdc.contract.errors import InputError
from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import JobSpec
from lakecdc.contract.target import ORDER_COLUMN, TIME_COLUMN, Target
from lakecdc.iceberg.fence import KnownState
from lakecdc.iceberg.table import Snapshot, carrier_of, open_if_there
from lakecdc.iceberg.threads import described
from lakecdc.ingest import tables
from lakecdc.ingest.aggregating.plan import Plan
from lakecdc.ingest.aggregating.source_rows import SourceRows, UnknownValuesError
from lakecdc.ingest.aggregating.values import Values
from lakecdc.ingest.apply import modes
from lakecdc.ingest.apply.publish import StateMovedError
from lakecdc.ingest.audit import Audit
from lakecdc.ingest.batch import Batch, CommitPlan
from lakecdc.ingest.change import Column, Rows
from lakecdc.ingest.lookup import read_between
from lakecdc.ingest.reconciliation import state_of
from lakecdc.ingest.table_feed import TableFeed, open_feed
from lakecdc.metadata import names
from lakecdc.metadata.exports import position_of
from lakecdc.metadata.floor import read_floor
from lakecdc.runtime.failpoints import reach
from lakecdc.runtime.run import failure
from lakecdc.sql import exact_value, quoted_column

log = logging.getLogger(__name__)


def refresh(spark: SparkSession, spec: JobSpec, target: Target) -> TableReport:
    """Bring the table of a target to the newest snapshot of its history table, and report it."""
    try:
        with described(spark, target.table, spec.job):
            return AggregatedTable(spark, spec, target, Plan.of(target)).refresh()
    except Exception as error:
        return failure(target.table, error)


@dataclass
class _Groups:
    """Values of groups: ``group``, columns, ``overflows``, ``order``, ``source_time``.

    :param everything: they are all groups, and replace those of the table.
    :param state: of the table, of whose rows they were made.
    """

    values: DataFrame
    everything: bool = False
    state: KnownState | None = None


class AggregatedTable:
    """An aggregated table and its history table during a run."""

    def __init__(self, spark: SparkSession, spec: JobSpec, target: Target, plan: Plan) -> None:
        self._spark, self._spec, self._plan = spark, spec, plan
        self._target = plan.table_target(target)
        self.feed: TableFeed = open_feed(spark, spec, self._target, None)
        if self.feed.error is not None:
            raise self.feed.error
        self._history = open_if_there(spark, spec.catalog.name, plan.history)

    def refresh(self) -> TableReport:
        """Bring the table to the newest snapshot of its history table."""
        self._refuse_other_plan()
        return self._run(self._changed)

    def rebuild(self, keys: DataFrame | None) -> TableReport:
        """Make rows anew: of some groups as of the snapshot that the table was made of, or all as of the newest one.

        :param keys: key columns of the groups; None for all.
        """
        raise NotImplementedError

    @property
    def _name(self) -> str:
        return self._target.table

    @cached_property
    def _values(self) -> Values:
        """Return the columns of the table; refuse functions of columns that are missing or do not fit."""
        assert self._history is not None
        types, merge = tables.source_types(self._history, replace(self._target, mode="history")), self._plan.merge
        named = [*self._plan.key, *merge.group_by, *(c.of for c in merge.aggregates if c.of != "*")]
        if missing := [name for name in named if name not in types]:
            raise InputError(
                f"Its merge needs {', '.join(missing)}, which the history table {self._plan.history} does not have.",
                table=self._name,
                hint='Correct key, group_by and columns. A renamed column keeps its name by "clean": {"rename": …}.',
            )
        for name, why in merge.misfits(types):
            raise InputError(f"The function of {name!r} in merge does not fit: {why}.", table=self._name)
        return Values(tuple(Column(name, types[name], True) for name in merge.group_by), merge.aggregates, types)

    @cached_property
    def _source(self) -> SourceRows:
        assert self._history is not None
        used = dict.fromkeys([*self._plan.key, *self._plan.merge.group_by])
        used |= dict.fromkeys(c.of for c in self._values.columns if c.of != "*")
        columns = tuple(Column(name, self._values.types[name]) for name in used)
        return SourceRows(self._history, columns, self._plan.key, self._truncated)

    @cached_property
    def _truncated(self) -> str | None:
        assert self._history is not None
        carrier = carrier_of(self._history.ancestors())
        return carrier.position.truncate_order if carrier and self._plan.truncates else None

    def _run(self, make: Callable[[Snapshot | None, Snapshot], _Groups | None]) -> TableReport:
        """Commit the groups that are made of the history table's snapshot before and the newest one."""
        began, history, feed = time.monotonic(), self._history, self.feed
        until = history.head() if history is not None else None
        if history is None or until is None:
            return replace(feed.report(), reason=f"the history table {self._plan.history} has no events yet")
        if read_floor(history.properties, history.name) is not None:
            raise InputError(
                f"Events have been removed from the history table {history.name}, so that its rows are not known.",
                table=self._name,
                hint="Keep all events of a table that others are aggregated from; feed new tables.",
            )
        for last in (False, False, True):
            try:
                groups = make(self._since(), until)
                if groups is not None and not self._spec.options.dry_run:
                    self._write(groups, until)
                break
            except StateMovedError:
                if last:
                    raise
                log.info("%s: rows have changed meanwhile, they are aggregated again", self._name)
                feed.existing.refresh()
        feed.add(seconds=round(time.monotonic() - began, 3))
        return feed.report()

    def _since(self) -> Snapshot | None:
        """Return the history table's snapshot that the table was made of; None if there is none any more."""
        position, history = self.feed.position, self._history
        assert history is not None
        if position is not None and position.identity != history.uuid:
            raise InputError(
                f"The table was aggregated from another history table than the present {history.name}.",
                table=self._name,
                hint="Run the job rebuild_keys, if the present one has all events.",
            )
        return history.snapshot(int(position.offsets["snapshot"])) if position is not None else None

    def _changed(self, since: Snapshot | None, until: Snapshot) -> _Groups | None:
        """Return the groups that have changed between two snapshots; None if the second is known."""
        truncated = self.feed.position.truncate_order if self.feed.position else None
        if since is not None and since.id == until.id:
            return None
        if since is None or truncated != self._truncated:
            return self._everything(until)
        assert self._history is not None
        with changes.between(self._history, since, until, key=()) as rows:
            new = rows.localCheckpoint()
        if not new.where(f"{changes.CHANGE_TYPE} = 'delete'").isEmpty():
            # erased, or rolled back
            return self._everything(until)
        self.feed.add(events=new.count())
        try:
            return self._of_new(self._source.events(new), since, until)
        except UnknownValuesError:
            # a row that had another key before may have them
            return self._everything(until)

    def _everything(self, until: Snapshot) -> _Groups:
        assert self._history is not None
        rows = self._source.live(self._source.events(self._history.read(until.id)))
        return _Groups(self._values.of_groups(self._signed(rows, 1)), everything=True)

    def _of_new(self, new: DataFrame, since: Snapshot, until: Snapshot) -> _Groups:
        """Return the groups that new events change."""
        table, state = self.feed.existing, state_of(self.feed.existing)
        keys = new.select("key.*").distinct().localCheckpoint()
        old = self._source.events_of(keys, since.id).localCheckpoint()
        before, after = self._source.live(old), self._source.live(old.unionByName(new))
        values = self._values.of_groups(self._difference(before, after)).localCheckpoint()
        anew = values.limit(0).select("group") if self._values.retracts else values.where("lost > 0").select("group")
        kept = values.join(anew, "group", "left_anti")
        group_columns = values.select("group.*").localCheckpoint()
        stored = read_between(table, group_columns, group_columns.columns).select(
            F.struct(*map(quoted_column, group_columns.columns)).alias("group"),
            F.struct(
                *[quoted_column(c.name) for c in self._values.columns],
                ROWS_COLUMN,
                F.col(ORDER_COLUMN).alias("order"),
                F.col(TIME_COLUMN).alias("source_time"),
            ).alias("had"),
        )
        combined = self._values.combined(stored, kept).localCheckpoint()
        sure = combined.where("NOT unsure").drop("unsure", "lost")
        anew = anew.union(combined.where("unsure").select("group")).localCheckpoint()
        if anew.isEmpty():
            return _Groups(sure, state=state)
        return _Groups(sure.unionByName(self._anew(anew.select("group.*"), until)), state=state)

    def _difference(self, before: DataFrame, after: DataFrame) -> DataFrame:
        """Return the rows to take back and those to add, without rows that are the same."""
        rows = self._signed(after, 1).unionByName(self._signed(before, -1))
        same = exact_value(F.col("row"), rows.schema["row"].dataType).alias("same")
        # the row has its key
        return rows.withColumn("times", F.sum("sign").over(Window.partitionBy(same))).where("times <> 0").drop("times")

    def _anew(self, groups: DataFrame, until: Snapshot) -> DataFrame:
        """Return the values of some groups, made of all their rows; those without rows have 0 in ``ROWS_COLUMN``."""
        keys = self._source.keys_with(groups, until.id).localCheckpoint()
        rows = self._signed(self._source.live(self._source.events_of(keys, until.id)), 1)
        wanted = groups.select(F.struct("*").alias("group"))
        values = self._values.of_groups(rows.join(wanted, "group", "left_semi")).drop("lost")
        self.feed.add(groups_built_anew=wanted.count())
        gone = F.coalesce(F.col(ROWS_COLUMN), F.lit(0))
        return wanted.join(values, "group", "left").withColumn(ROWS_COLUMN, gone)

    def _signed(self, rows: DataFrame, sign: int) -> DataFrame:
        group = self._values.group()
        return rows.select(group.alias("group"), "row", "order", "source_time", F.lit(sign).alias("sign"))

    def _write(self, groups: _Groups, until: Snapshot) -> None:
        """Commit the values of groups."""
        assert self._history is not None
        feed, columns = self.feed, self._values.table_columns
        key = tuple(column.name for column in self._values.group_by)
        with _persisted(groups.values) as values:
            count = self._checked(values)
            row = F.struct(*[F.col("group")[k].alias(k) for k in key], *[c.name for c in columns[len(key) :]])
            rows = values.select(
                F.col("group").alias("key"),
                F.when(F.col(ROWS_COLUMN) > 0, "u").otherwise("d").alias("op"),
                row.alias("row"),
                "order",
                "source_time",
                # the table may have each of them
                F.lit(0).alias("n_c"),
                F.lit(2).alias("n_d"),
            )
            carrier = carrier_of(self._history.ancestors_of(until))
            through = carrier.position.read_through if carrier else None
            position = position_of(self._history.name, self._history.uuid, until.id, through)
            position = replace(position, truncate_order=self._truncated)
            audit = Audit.of(self._target, show_values=feed.options.report_values)
            commit = CommitPlan(replaces=groups.everything, state=groups.state, audit=audit)
            changed = Rows(rows, folded=not groups.everything, keys=count) if count else None
            batch = Batch(self._target, key, columns, changed, position, full_load=groups.everything, commit=commit)
            feed.table, _ = tables.prepare(self._spark, self._spec.catalog.name, feed.table, batch)
            modes.check_debt(feed.table, batch, feed.options.max_delete_files)
            mode, choice = modes.choose(feed.table, batch, feed.options.max_delete_files, None)
            feed.metrics.update(choice)
            reach("before_aggregate")
            feed.note(modes.apply_rows(mode, feed.table, batch, position, feed.started_from), position)
            feed.add(groups=count)

    def _checked(self, values: DataFrame) -> int:
        """Count groups; refuse sums that do not fit their columns, and groups without a value."""
        nulls = {c.name: F.col(f"group.{quoted_column(c.name)}").isNull() for c in self._values.group_by}
        there = F.col(ROWS_COLUMN) > 0
        over = F.array_distinct(F.flatten(F.collect_set(F.when(there, F.col("overflows")))))
        row = values.agg(
            F.count(F.lit(1)),
            over,
            *[F.count_if(there & F.coalesce(is_null, F.lit(False))) for is_null in nulls.values()],
        ).first()
        assert row is not None
        if row[1]:
            raise InputError(
                f"The values of {', '.join(sorted(row[1]))} do not fit their types any more.",
                table=self._name,
                hint='Sum up a wider type, such as "columns": {"…": "decimal(38,0)"}, in a new table.',
            )
        if without := [name for name, rows in zip(nulls, row[2:], strict=True) if rows]:
            raise InputError(
                f"Rows of the source have no value of {', '.join(without)}, which is in group_by.",
                table=self._name,
                hint="Fill it at the source, or take it out of group_by and feed a new table.",
            )
        return int(row[0])

    def _refuse_other_plan(self) -> None:
        """Refuse a table that is not aggregated in this way."""
        table = self.feed.table
        known = table.properties.get(names.AGGREGATED) if table is not None else None
        if table is not None and known != self._plan.encode():
            raise InputError(
                f"The table is aggregated by {known or 'nothing'}, and its target has {self._plan.encode()}.",
                table=self._name,
                hint="Run the job rebuild_keys with the new rules as options.rules, or feed a new table."
                if known
                else "Name a new table.",
            )


@contextmanager
def _persisted(frame: DataFrame) -> Iterator[DataFrame]:
    kept = frame.persist()
    try:
        yield kept
    finally:
        kept.unpersist()
