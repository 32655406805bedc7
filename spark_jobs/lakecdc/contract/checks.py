"""Checks that a spec or a configuration declares for a table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from lakecdc.contract.errors import SpecError


@dataclass(frozen=True, kw_only=True)
class _Check:
    """Options of every check.

    :param where: SQL condition of the rows to check; default: all rows.
    :param severity: ``error`` fails the table, ``warn`` is only reported.
    """

    where: str | None = None
    severity: Literal["error", "warn"] = "error"

    @property
    def title(self) -> str:
        """The check's name in reports."""
        return f"{self._name}{f' where {self.where}' if self.where else ''}"

    @property
    def _name(self) -> str:
        raise NotImplementedError

    @property
    def is_of_table(self) -> bool:
        """Whether it needs more than the checked rows: the table's past, or its last write."""
        return False


@dataclass(frozen=True, kw_only=True)
class _OfColumns(_Check):
    """Options of checks of several columns.

    :param columns: names of columns.
    """

    type: str
    columns: tuple[str, ...]

    def __post_init__(self) -> None:
        _refuse_none(self.columns, f"{self.type} names no columns.")

    @property
    def _name(self) -> str:
        return f"{self.type}({', '.join(self.columns)})"


@dataclass(frozen=True, kw_only=True)
class NotNull(_OfColumns):
    """No row has a null in one of these columns."""

    type: Literal["not_null"] = "not_null"


@dataclass(frozen=True, kw_only=True)
class Unique(_OfColumns):
    """No two rows have the same values in these columns; rows with a null in one of them do not count."""

    type: Literal["unique"] = "unique"


@dataclass(frozen=True, kw_only=True)
class AcceptedValues(_Check):
    """A column has one of these values, or null, in every row.

    :param column: its name.
    :param values: JSON values, cast to the column's type.
    """

    type: Literal["accepted_values"] = "accepted_values"
    column: str
    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        _refuse_none(self.values, f"accepted_values of {self.column!r} has no values.")
        odd = [value for value in self.values if not isinstance(value, str | int | float)]
        if odd:
            raise SpecError(
                f"accepted_values of {self.column!r} has {odd[0]!r}.", hint="Write text, numbers, true or false."
            )

    @property
    def _name(self) -> str:
        return f"accepted_values({self.column})"


@dataclass(frozen=True, kw_only=True)
class Condition(_Check):
    """Every row meets a condition, or leaves it open because of a null, as with a CHECK constraint of SQL.

    :param condition: Spark SQL over the columns.
    """

    type: Literal["condition"] = "condition"
    condition: str

    @property
    def _name(self) -> str:
        return f"condition({self.condition})"


@dataclass(frozen=True, kw_only=True)
class RowCount(_Check):
    """The number of rows is within bounds.

    :param min: fewest rows.
    :param max: most rows.
    :param max_change: maximum relative difference, such as 0.2, from the average after the ``last`` runs that wrote to
        the table, as far as its snapshots go; not with ``where``.
    :param last: number of these runs.
    """

    type: Literal["row_count"] = "row_count"
    min: int | None = None
    max: int | None = None
    max_change: float | None = None
    last: int = 7

    def __post_init__(self) -> None:
        _refuse_none((x for x in (self.min, self.max, self.max_change) if x is not None), "row_count has no bounds.")
        if self.max_change is not None and not self.max_change >= 0:
            raise SpecError(f"max_change of row_count is {self.max_change}, not 0 or more.")
        if self.last < 1:
            raise SpecError(f"last of row_count is {self.last}, not 1 or more runs.")
        if self.is_of_table and self.where:
            raise SpecError(
                "row_count has both where and max_change, but snapshots only count all rows.",
                hint="Remove one of them.",
            )

    @property
    def _name(self) -> str:
        return "row_count"

    @property
    def is_of_table(self) -> bool:
        return self.max_change is not None


@dataclass(frozen=True, kw_only=True)
class Freshness(_Check):
    """The newest row, or the last write, is not too old.

    :param column: date or timestamp column whose newest value counts; default: the time at the source up to which the
        table has all changes, or if unknown, that of the last commit other than maintenance.
    :param max_age: seconds.
    """

    type: Literal["freshness"] = "freshness"
    column: str | None = None
    max_age: float

    def __post_init__(self) -> None:
        if not self.max_age > 0:
            raise SpecError(f"max_age of freshness is {self.max_age}, not above 0 seconds.")
        if self.where and self.column is None:
            raise SpecError("freshness has where but no column, and a write always counts for all rows.")

    @property
    def _name(self) -> str:
        return f"freshness({self.column or 'last write'})"

    @property
    def is_of_table(self) -> bool:
        return self.column is None


Check = NotNull | Unique | AcceptedValues | Condition | RowCount | Freshness


@dataclass(frozen=True)
class CheckingOptions:
    """Options of jobs that check tables.

    :param checks: checks by table.
    :param report_values: show keys and checked values of some failing rows in the report.
    :param branch: the branch to check.
    """

    checks: dict[str, tuple[Check, ...]] = field(default_factory=dict)
    report_values: bool = False
    branch: str = "main"


def _refuse_none(values: Any, message: str) -> None:
    if not list(values):
        raise SpecError(message, hint="Name at least one, or remove the check.")
