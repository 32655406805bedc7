"""Compute the groups of an aggregated table: all groups, groups changed by new events, or given ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from lakecdc.contract.aggregating import ROWS_COLUMN
from lakecdc.contract.errors import InputError
from lakecdc.contract.target import ORDER_COLUMN, TIME_COLUMN
from lakecdc.iceberg.fence import KnownState
from lakecdc.iceberg.table import IcebergTable, Snapshot
from lakecdc.ingest.aggregating.source_rows import SourceRows
from lakecdc.ingest.aggregating.values import Values
from lakecdc.ingest.lookup import read_keys
from lakecdc.ingest.reconciliation import state_of
from lakecdc.sql import exact_value, parsed_type, quoted_column


@dataclass(frozen=True)
class Groups:
    """Groups to write.

    :param values: ``g0 …, made, overflows, order, source_time``, see :meth:`Values.of_groups`.
    :param at: snapshot of the history table from which the table is aggregated after the write.
    :param everything: these are all groups, and replace those of the table.
    :param state: state of the table from whose rows they were computed.
    :param built_anew: number of changed groups computed from all their rows.
    """

    values: DataFrame
    at: Snapshot
    everything: bool = False
    state: KnownState | None = None
    built_anew: int = 0

    @staticmethod
    def has_rows() -> Expression:
        """Return the condition that a group has rows at the source."""
        return F.coalesce(F.col("made")[ROWS_COLUMN], F.lit(0)) > 0

    def check(self, table: str, group: Mapping[str, str]) -> int:
        """Count the groups; refuse sums that do not fit their columns, and groups without a value.

        :param group: columns of ``group_by``, and of ``values``.
        """
        there = self.has_rows()
        over = F.array_distinct(F.flatten(F.collect_set(F.when(there, F.col("overflows")))))
        nulls = [F.count_if(there & F.col(column).isNull()) for column in group.values()]
        row = self.values.agg(F.count(F.lit(1)), over, *nulls).first()
        assert row is not None
        if row[1]:
            raise InputError(
                f"The sums of {', '.join(sorted(row[1]))} no longer fit their types; nothing was written.",
                table=table,
                hint='Set "columns" of the target to a wider decimal for the summed columns, and feed new tables.',
            )
        if without := [name for name, count in zip(group, row[2:], strict=True) if count]:
            raise InputError(
                f"Rows of the source have no value for {', '.join(without)}, which is in group_by; nothing was "
                "written.",
                table=table,
                hint="Fill it at the source, or feed a new table without it in group_by.",
            )
        return int(row[0])


@dataclass(frozen=True)
class GroupMaker:
    """Compute groups from the rows of the source."""

    source: SourceRows
    values: Values

    def all_groups(self, at: Snapshot) -> Groups:
        """Return all groups as of a snapshot of the history table."""
        rows = self.source.live(self.source.events(self.source.history.read(at.id)))
        return Groups(self.values.of_groups(self._signed(rows, 1)), at, everything=True)

    def of_keys(self, keys: DataFrame, at: Snapshot) -> Groups:
        """Return groups, given by distinct values of ``group_by``, computed from all their rows."""
        return Groups(self._anew(keys, at), at, built_anew=keys.count())

    def of_events(self, new: DataFrame, table: IcebergTable, since: Snapshot, until: Snapshot) -> Groups:
        """Return the groups that new events change.

        :param new: events of the history table between its two snapshots.
        :param table: table with the values as of the first.
        :raises UnknownValuesError: values that these events leave out are only in events of other keys.
        """
        state = state_of(table)
        keys = new.select("key.*").distinct().localCheckpoint()
        old = self.source.events_of(keys, since.id).localCheckpoint()
        before, after = self.source.live(old), self.source.live(old.unionByName(new))
        changed = self.values.of_groups(self._difference(before, after)).localCheckpoint()
        # only sums can subtract rows that a group lost
        losing = F.lit(False) if self.values.retracts else F.col("lost") > 0
        stored = self._stored(table, self._keys(changed))
        combined = self.values.combined(stored, changed.where(~losing)).localCheckpoint()
        anew = self._keys(combined.where("unsure")).union(self._keys(changed.where(losing))).localCheckpoint()
        groups = combined.where("NOT unsure").drop("unsure")
        count = anew.count()
        if count:
            groups = groups.unionByName(self._anew(anew, until))
        return Groups(groups, until, state=state, built_anew=count)

    def _anew(self, keys: DataFrame, at: Snapshot) -> DataFrame:
        of_source = self.source.keys_with(keys, at.id).localCheckpoint()
        rows = self._signed(self.source.live(self.source.events_of(of_source, at.id)), 1)
        group = self.values.group
        group_keys = keys.select(*[F.col(quoted_column(name)).alias(column) for name, column in group.items()])
        values = self.values.of_groups(rows.join(group_keys, [*group.values()], "left_semi")).drop("lost")
        return group_keys.join(values, [*group.values()], "left")

    def _difference(self, before: DataFrame, after: DataFrame) -> DataFrame:
        """Return the rows to subtract and the rows to add, without equal rows."""
        rows = self._signed(after, 1).unionByName(self._signed(before, -1))
        kinds = {c.name: parsed_type(c.type) for c in self.source.columns}
        # the key is among the columns
        same = [exact_value(F.col("row")[name], kind).alias(f"c{n}") for n, (name, kind) in enumerate(kinds.items())]
        times = F.sum("sign").over(Window.partitionBy(*same))
        return rows.withColumn("times", times).where("times <> 0").drop("times")

    def _signed(self, rows: DataFrame, sign: int) -> DataFrame:
        group = [F.col("row")[name].alias(column) for name, column in self.values.group.items()]
        return rows.select(*group, "row", "order", "source_time", F.lit(sign).alias("sign"))

    def _keys(self, values: DataFrame) -> DataFrame:
        """Return the groups of values, by the columns of the table."""
        return values.select(*[F.col(column).alias(name) for name, column in self.values.group.items()])

    def _stored(self, table: IcebergTable, keys: DataFrame) -> DataFrame:
        """Return the table's values of some groups, see :meth:`Values.combined`."""
        key = [F.col(quoted_column(name)).alias(column) for name, column in self.values.group.items()]
        had = F.struct(*[quoted_column(c.name) for c in self.values.columns], ROWS_COLUMN).alias("had")
        own = [F.col(ORDER_COLUMN).alias("had_order"), F.col(TIME_COLUMN).alias("had_time")]
        return read_keys(table, keys, keys.columns).select(*key, had, *own)
