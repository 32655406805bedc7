"""Columns of an aggregated table and their functions of the source's rows (``ingest.aggregating``)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

#: functions of several rows' values
FUNCTIONS = ("sum", "count", "min", "max", "bool_or", "bool_and", "collect_list", "collect_set")
#: functions among these that can subtract a value from their result
RETRACTING = ("sum", "count")
#: hidden column: number of the source's rows in a row
ROWS_COLUMN = "_lakecdc_rows"
_TEXT = re.compile(r"(\w+)(?:\((.+)\))?")
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


@dataclass(frozen=True)
class AggregateColumn:
    """A column of an aggregated table.

    :param function: of the values of ``of`` that are not null.
    :param of: column of the source; ``*`` counts rows.
    """

    name: str
    function: str
    of: str

    @classmethod
    def parse(cls, name: str, text: str) -> AggregateColumn:
        """Parse a text such as ``sum(amount)``; a bare ``sum`` is of the column of that name."""
        match = _TEXT.fullmatch(text.strip())
        return cls(name, match[1], (match[2] or name).strip()) if match else cls(name, text, name)

    @property
    def retracts(self) -> bool:
        """Check whether a row can be subtracted from its value."""
        return self.function in RETRACTING

    def type_of(self, kind: str) -> str:
        """Return its Spark SQL type, given that of the source's column; see :meth:`refusal`."""
        if self.function == "count":
            return "bigint"
        if self.function == "sum":
            match = _DECIMAL.fullmatch(kind)
            return f"decimal({min(38, int(match[1]) + 10)},{match[2]})" if match else "bigint"
        return f"array<{kind}>" if self.function.startswith("collect") else kind

    def refusal(self, kind: str) -> str | None:
        """Return why the function does not fit a column of a Spark SQL type, with what to do; None if it does."""
        if self.function == "sum" and kind in ("float", "double"):
            return f'a sum of {kind} depends on the order of its rows; set "columns": {{"{self.of}": "decimal(38,6)"}}'
        if self.function == "sum" and kind not in _WHOLE and not _DECIMAL.fullmatch(kind):
            return f"sum is for whole numbers and decimals, not for {kind}"
        if self.function.startswith("bool") and kind != "boolean":
            return f"{self.function} is for boolean columns, not for {kind}"
        compared = self.function in ("min", "max") or self.function.startswith("collect")
        if compared and re.match("map|variant|array|struct", kind):
            return f"{self.function} compares values, and values of type {kind} have no order"
        return None


def aggregate_mistakes(columns: Sequence[AggregateColumn], group_by: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Yield the mistakes in the columns of an aggregated table, each with a hint."""
    if not group_by or not columns:
        hint = 'Set "group_by": ["country"] and "columns": {"total": "sum(amount)"}, for example.'
        yield f"merge.engine is 'aggregate', and merge has no {'columns' if group_by else 'group_by'}.", hint
    for column in columns:
        if column.function not in FUNCTIONS:
            hint = f"It must be one of {', '.join(FUNCTIONS)} of a column, such as sum(amount), or count(*)."
            yield f"merge.columns.{column.name} is {column.function!r}, which is not a function of several rows.", hint
        if column.of == "*" and column.function != "count":
            yield f"merge.columns.{column.name} is {column.function}(*).", "Name a column; only count takes *."
        if column.name in group_by or column.name.lower().startswith("_lakecdc_"):
            yield f"merge.columns names {column.name!r}, which is a column of group_by or of lakecdc.", "Rename it."


def misfits_of_types(columns: Sequence[AggregateColumn], types: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the source's columns, given by their types, that a function does not fit, and why."""
    for column in columns:
        why = column.refusal(types[column.of]) if column.of in types and column.function != "count" else None
        if why:
            yield column.of, why
