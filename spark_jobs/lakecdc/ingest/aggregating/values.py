"""Build expressions of aggregated values.

Rows have a ``sign``: 1 for rows to add, -1 for rows to subtract.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakecdc.contract.aggregating import ROWS_COLUMN, AggregateColumn
from lakecdc.ingest.change import Column

_COMBINED: dict[str, Callable[..., Expression]] = {
    "min": F.least,
    "max": F.greatest,
    # false is below true
    "bool_or": F.greatest,
    "bool_and": F.least,
}


@dataclass(frozen=True)
class Values:
    """Values of an aggregated table's columns.

    :param group_by: key columns of the table, with types.
    :param types: types of the source's columns.
    """

    group_by: tuple[Column, ...]
    columns: tuple[AggregateColumn, ...]
    types: dict[str, str]

    @property
    def table_columns(self) -> tuple[Column, ...]:
        """Return the columns of the table, without the order key and the source time."""
        own = [Column(column.name, self.type_of(column)) for column in self.columns]
        return (*self.group_by, *own, Column(ROWS_COLUMN, "bigint"))

    @property
    def retracts(self) -> bool:
        """Check whether every column can subtract a row."""
        return all(column.retracts for column in self.columns)

    def type_of(self, column: AggregateColumn) -> str:
        return column.type_of(self.types.get(column.of, "bigint"))

    @property
    def group(self) -> dict[str, str]:
        """Return the group columns of frames, by the table's column names."""
        return {column.name: f"g{place}" for place, column in enumerate(self.group_by)}

    def of_groups(self, rows: DataFrame) -> DataFrame:
        """Return the values of each group: ``g0 …, made, lost, overflows, order, source_time``.

        The struct ``made`` has the table's columns outside ``group_by``, ``lost`` counts the rows to subtract, and
        ``overflows`` names columns whose sums do not fit their types.

        :param rows: ``g0 …, row, order, source_time, sign``.
        """
        values = [self._of_rows(column).alias(column.name) for column in self.columns]
        summed = [F.count(F.col("row")[column.of]).alias(column.name) for column in self._sums]
        grouped = rows.groupBy(*self.group.values()).agg(
            F.struct(*values, F.sum("sign").alias(ROWS_COLUMN)).alias("made"),
            F.struct(F.lit(0).alias("none"), *summed).alias("summed"),
            F.count_if(F.col("sign") < 0).alias("lost"),
            F.max("order").alias("order"),
            F.max("source_time").alias("source_time"),
        )
        totals, of = F.col("made"), F.col("summed")
        over = {c.name: (of[c.name] > 0) & totals[c.name].isNull() for c in self._sums}
        return grouped.withColumn("overflows", _names_where(over)).drop("summed")

    def combined(self, stored: DataFrame, values: DataFrame) -> DataFrame:
        """Combine the values of :meth:`of_groups` with the table's, and add ``unsure``.

        A group is ``unsure`` if a sum without values may be 0 or null, or if the table lacks its row.

        :param stored: ``g0 …``, ``had`` like ``made``, and ``had_order`` and ``had_time`` of the row.
        """
        old, new = F.col("had"), F.col("made")
        is_new = old.isNull()
        both = {c.name: self._combined(c, old[c.name], new[c.name]) for c in self.columns}
        rows = F.coalesce(old[ROWS_COLUMN], F.lit(0)) + new[ROWS_COLUMN]
        over = {c.name: old[c.name].isNotNull() & new[c.name].isNotNull() & both[c.name].isNull() for c in self._sums}
        may_be_null = reduce(or_, (F.coalesce(both[c.name] == 0, F.lit(False)) for c in self._sums), F.lit(False))
        struct = F.struct(*[value.alias(name) for name, value in both.items()], rows.alias(ROWS_COLUMN))
        group = list(self.group.values())
        return values.join(stored, group, "left").select(
            *group,
            F.when(is_new, new).otherwise(struct).alias("made"),
            F.array_union("overflows", _names_where(over)).alias("overflows"),
            F.greatest("had_order", "order").alias("order"),
            F.greatest("had_time", "source_time").alias("source_time"),
            ((F.col("lost") > 0) & (is_new | (rows < 0) | (may_be_null & (rows > 0)))).alias("unsure"),
        )

    @property
    def _sums(self) -> list[AggregateColumn]:
        return [column for column in self.columns if column.function == "sum"]

    def _of_rows(self, column: AggregateColumn) -> Expression:
        value = F.lit(1) if column.of == "*" else F.col("row")[column.of]
        added = F.when(F.col("sign") > 0, value)
        match column.function:
            case "count":
                return F.coalesce(F.sum(F.when(value.isNotNull(), F.col("sign"))), F.lit(0)).cast("bigint")
            case "sum":
                wide = value.cast(f"decimal(38,{_scale(self.type_of(column))})")
                # overflow must not depend on the order of the rows
                return F.try_sum(F.when(F.col("sign") > 0, wide).otherwise(-wide)).try_cast(self.type_of(column))
            case "collect_list":
                return F.sort_array(F.collect_list(added))
            case "collect_set":
                return F.sort_array(F.collect_set(added))
            case function:
                return getattr(F, function)(added)

    def _combined(self, column: AggregateColumn, old: Expression, new: Expression) -> Expression:
        match column.function:
            case "count":
                return F.coalesce(old, F.lit(0)) + new
            case "sum":
                wide = f"decimal(38,{_scale(self.type_of(column))})"
                total = F.try_add(old.cast(wide), new.cast(wide)).try_cast(self.type_of(column))
                return F.when(old.isNull(), new).when(new.isNull(), old).otherwise(total)
            case "collect_list":
                return F.sort_array(F.concat(F.coalesce(old, F.array()), new))
            case "collect_set":
                return F.sort_array(F.array_union(F.coalesce(old, F.array()), new))
            case function:
                return _COMBINED[function](old, new)


def _names_where(conditions: dict[str, Expression]) -> Expression:
    """Return the names whose conditions are true."""
    named: Sequence[Expression] = [F.when(condition, F.lit(name)) for name, condition in conditions.items()]
    return F.array_compact(F.array(*named)) if named else F.array().cast("array<string>")


def _scale(kind: str) -> str:
    """Return the digits after the point of a decimal type, or 0."""
    return kind.rstrip(")").rpartition(",")[2] if kind.startswith("decimal") else "0"
