"""Check rows against the checks of a target; all checks that count rows share one pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from operator import or_
from typing import Any

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from lakecdc.contract.checks import AcceptedValues, Check, Condition, Freshness, NotNull, RowCount, Unique
from lakecdc.contract.errors import InputError
from lakecdc.contract.fields import parse_moment
from lakecdc.contract.secrets import without_values
from lakecdc.iceberg.explain import explain
from lakecdc.iceberg.expressions import referenced_columns
from lakecdc.iceberg.table import IcebergTable, Snapshot
from lakecdc.metadata.last_write import earlier_rows, last_write
from lakecdc.sql import quoted_column, sql_type

_MOMENTS = ("date", "timestamp", "timestamp_ntz")
_COUNT = "_lakecdc_count"
# maximum number of failing rows shown, of rows named in a reason, and of characters per row
_MOST_SHOWN, _MOST_NAMED, _LONGEST_SHOWN = 10, 3, 500


@dataclass(frozen=True)
class Verdict:
    """Result of a check.

    :param facts: numbers by name.
    :param sample: keys and checked values of some failing rows, as JSON.
    """

    check: Check
    passed: bool
    summary: str
    facts: dict[str, Any]
    sample: tuple[str, ...] = ()

    @property
    def fails(self) -> bool:
        return not self.passed and self.check.severity == "error"

    @property
    def line(self) -> str:
        """Return the result with the check's name and some failing rows."""
        such = f", such as {', '.join(self.sample[:_MOST_NAMED])}" if self.sample else ""
        return f"{self.check.title}: {self.summary}{such}"

    def report(self) -> dict[str, Any]:
        entry = {"check": self.check.title, "severity": self.check.severity, "passed": self.passed, **self.facts}
        return {**entry, "sample": list(self.sample)} if self.sample else entry


class Checks:
    """Checks of the rows of one table.

    :param rows: rows to check, with the table's columns.
    :param snapshots: from the rows' snapshot towards the root, for checks of the table's past.
    :raises InputError: a column does not exist, or Spark refuses an expression; nothing was read.
    """

    def __init__(
        self, table: IcebergTable, rows: DataFrame, checks: Sequence[Check], snapshots: Sequence[Snapshot] = ()
    ) -> None:
        self._table, self._rows, self._checks = table, rows, tuple(checks)
        self._snapshots = list(snapshots)
        for check in self._checks:
            self._refuse_bad(check)

    def verdicts(self, *, show_values: bool = False) -> list[Verdict]:
        """Read the rows once, and some failing ones once more to show them.

        :param show_values: show their keys and checked values.
        :raises InputError: an expression fails on a value.
        """
        try:
            measured = self._measured()
            return [self._verdict(check, measured[n], show_values) for n, check in enumerate(self._checks)]
        except PySparkException as error:
            cause = explain(error)
            if cause is None or not cause.bad_data:
                raise
            raise InputError(
                f"A check failed on a value: {cause.text if show_values else without_values(cause.text)}",
                table=self._table.name,
                hint="Make its expression return null for it, such as with try_cast, or exclude such rows with where.",
            ) from error

    def _measured(self) -> list[dict[str, Any]]:
        """Return the aggregates of each check, by name."""
        measures = [dict(self._measures(check)) for check in self._checks]
        aggregates = [e.alias(f"{n}_{name}") for n, each in enumerate(measures) for name, e in each.items()]
        row = self._rows.agg(*aggregates).first() if aggregates else None
        return [{name: row[f"{n}_{name}"] for name in each if row} for n, each in enumerate(measures)]

    def _verdict(self, check: Check, measured: dict[str, Any], show_values: bool) -> Verdict:
        if isinstance(check, RowCount):
            return self._row_count(check, measured["rows"])
        if isinstance(check, Freshness):
            return self._freshness(check, measured.get("newest"))
        count = measured["failed"] if "failed" in measured else measured["known"] - measured["distinct"]
        shown = self._sample(check) if count and show_values else ()
        return Verdict(check, not count, _rows(count), {"failed_rows": count}, shown)

    def _measures(self, check: Check) -> Iterator[tuple[str, Column]]:
        """Yield the aggregates of a check, by name."""
        where = _where(check)
        if isinstance(check, RowCount):
            # Iceberg may know the count of all rows without reading any
            yield "rows", F.count(F.lit(1)) if check.where is None else F.count_if(where)
        elif isinstance(check, Unique):
            first, *others = (F.col(quoted_column(name)) for name in check.columns)
            yield "known", F.count_if(where & ~_any_null(check.columns))
            yield "distinct", F.count_distinct(F.when(where, first), *others)
        elif not isinstance(check, Freshness):
            yield "failed", F.count_if(where & self._fails(check))
        elif check.column is not None:
            yield "newest", F.max(F.when(where, F.unix_micros(F.col(quoted_column(check.column)).cast("timestamp"))))

    def _fails(self, check: NotNull | AcceptedValues | Condition) -> Column:
        """Return the condition of failing rows."""
        if isinstance(check, NotNull):
            return _any_null(check.columns)
        if isinstance(check, Condition):
            return ~F.expr(check.condition)
        column = F.col(quoted_column(check.column))
        kind = self._type_of(column)
        return ~column.isin(*[F.lit(value).cast(kind) for value in check.values])

    def _row_count(self, check: RowCount, rows: int) -> Verdict:
        low, high = check.min or 0, float("inf") if check.max is None else check.max
        summary, passed, facts = _rows(rows), low <= rows <= high, dict[str, Any](rows=rows)
        if check.max_change is not None and (before := earlier_rows(self._snapshots, check.last)):
            change = before.change(rows)
            passed = passed and change <= check.max_change
            facts |= {"change": round(change, 4), "runs_compared": before.runs}
            summary += f", a change by {change:.1%} from the average of {before.runs} earlier runs"
        return Verdict(check, passed, summary, facts)

    def _freshness(self, check: Freshness, newest_micros: int | None) -> Verdict:
        newest = self._last_write() if check.column is None else newest_micros and newest_micros / 1e6
        if newest is None:
            return Verdict(check, False, "there is none", {})
        age = datetime.now(UTC).timestamp() - newest
        return Verdict(check, age <= check.max_age, f"{age:.0f} s old", {"age_seconds": round(age, 3)})

    def _last_write(self) -> float | None:
        written = last_write(self._snapshots, self._table.properties)
        if written is None:
            return None
        return parse_moment(written.source_time or written.written_at, "the last write").timestamp()

    def _sample(self, check: NotNull | AcceptedValues | Condition | Unique) -> tuple[str, ...]:
        rows = self._rows.where(_where(check))
        if isinstance(check, Unique):
            columns = [quoted_column(name) for name in check.columns]
            groups = rows.where(~_any_null(check.columns)).groupBy(*columns).agg(F.count(F.lit(1)).alias(_COUNT))
            failing = groups.where(f"{_COUNT} > 1").drop(_COUNT)
        else:
            failing = rows.where(self._fails(check)).select(*map(quoted_column, self._shown(check)))
        return tuple(row[:_LONGEST_SHOWN] for row in failing.limit(_MOST_SHOWN).toJSON().collect())

    def _shown(self, check: NotNull | AcceptedValues | Condition) -> list[str]:
        """Return the key and the checked columns."""
        if isinstance(check, Condition):
            named = {name.lower() for name in referenced_columns(self._table.spark, check.condition)}
            checked = [name for name in self._rows.columns if name.lower() in named]
        else:
            checked = [check.column] if isinstance(check, AcceptedValues) else list(check.columns)
        return list(dict.fromkeys([*self._table.identifier_columns, *checked]))

    def _refuse_bad(self, check: Check) -> None:
        try:
            for sql in filter(None, (check.where, getattr(check, "condition", None))):
                self._refuse_no_condition(check, sql)
            measures = list(self._measures(check))
            if measures:
                # analysed only: nothing is read before an action
                self._rows.agg(*[expression.alias(name) for name, expression in measures])
            if isinstance(check, AcceptedValues):
                self._refuse_other_types(check)
            if isinstance(check, Freshness) and check.column is not None:
                self._refuse_no_moment(check, check.column)
        except AnalysisException as error:
            raise InputError(
                f"Spark refuses the check {check.title}: {str(error).splitlines()[0]}",
                table=self._table.name,
                hint=f"Use columns of {', '.join(self._rows.columns)}.",
            ) from error

    def _refuse_no_condition(self, check: Check, sql: str) -> None:
        kind = self._type_of(F.expr(sql)).typeName()
        if kind != "boolean":
            hint = "Use SQL that is true or false for each row."
            raise self._unexpected(check, "a condition", f"{sql!r} of type {kind}", hint)

    def _refuse_other_types(self, check: AcceptedValues) -> None:
        kind = self._type_of(F.col(quoted_column(check.column)))
        values = self._table.spark.sql("SELECT 1").select(*[F.lit(value).try_cast(kind) for value in check.values])
        odd = [value for value, cast in zip(check.values, values.first() or (), strict=True) if cast is None]
        if odd:
            expected = f"values of type {sql_type(kind)}"
            raise self._unexpected(check, expected, repr(odd[0]), "Use values of the column's type.")

    def _refuse_no_moment(self, check: Freshness, column: str) -> None:
        kind = self._type_of(F.col(quoted_column(column))).typeName()
        if kind not in _MOMENTS:
            hint = "Name another column, or none to use the last write."
            raise self._unexpected(check, "a date or timestamp column", f"{column!r} of type {kind}", hint)

    def _type_of(self, expression: Column) -> DataType:
        return self._rows.select(expression).schema[0].dataType

    def _unexpected(self, check: Check, expected: str, got: str, hint: str) -> InputError:
        message = f"Expected {expected} in the check {check.title}, got {got}."
        return InputError(message, table=self._table.name, hint=hint)


def describe_failures(verdicts: Sequence[Verdict]) -> str | None:
    """Describe what failed, in one line; return None if everything passed."""
    failing = [verdict for verdict in verdicts if verdict.fails]
    warning = [verdict for verdict in verdicts if not verdict.passed and not verdict.fails]
    parts = [
        f"{len(group)} of {len(verdicts)} checks {what}: {'; '.join(verdict.line for verdict in group)}"
        for group, what in ((failing, "failed"), (warning, "warned"))
        if group
    ]
    return ". ".join(parts) or None


def _rows(count: int) -> str:
    return f"{count} row{'s' if count != 1 else ''}"


def _where(check: Check) -> Column:
    return F.lit(True) if check.where is None else F.expr(check.where)


def _any_null(columns: Sequence[str]) -> Column:
    return reduce(or_, (F.col(quoted_column(name)).isNull() for name in columns))
