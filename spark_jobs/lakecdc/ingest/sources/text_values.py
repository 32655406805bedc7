"""Values that a database writes as texts, typed for the target's columns, and what to do with those that do not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression

    from lakecdc.ingest.change import Column

#: columns that a judged change frame has besides the others: see :func:`judgement`
JUDGED = ("misfits", "texts", "old_texts")
# the first and the last moment that every reader of Iceberg tables takes
_BOUNDS = {
    "date": ("0001-01-01", "9999-12-31"),
    "timestamp_ntz": ("0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"),
    "timestamp": ("0001-01-01 00:00:00+00", "9999-12-31 23:59:59.999999+00"),
}


@dataclass(frozen=True, eq=False)
class TextValue:
    """A value's text, and the value in the type of its column.

    :param column: name of the target's column.
    :param type: Spark SQL type of the column.
    :param value: null where the text does not fit.
    :param may_misfit: whether a null value of a text means that it does not fit.
    """

    column: str
    type: str
    text: Expression
    value: Expression
    may_misfit: bool = True

    def or_stop(self) -> Expression:
        """Return the value; evaluating it raises where the text does not fit."""
        if not self.may_misfit:
            return self.value
        reason = F.concat(
            F.lit(f"Column {self.column!r}: the value "),
            F.substr(self.text, F.lit(1), F.lit(40)),
            F.lit(f" does not fit into {self.type}. Correct it at the source, or exclude the column."),
        )
        refused = F.raise_error(reason).cast(self.type)
        return F.coalesce(self.value, F.when(self.text.isNotNull(), refused))

    def misfit(self) -> Expression:
        """Return the condition of texts that do not fit."""
        return self.text.isNotNull() & self.value.isNull() if self.may_misfit else F.lit(False)


def by_version(column: Column, found: Sequence[tuple[int, TextValue]], versions: int) -> TextValue:
    """Return a column's value, wherever the descriptions of its table have it.

    :param found: with the number of each description that has it; rows of the others show the column's ``fill``.
    :param versions: how many descriptions there are.
    """
    if versions == 1 and found:
        return found[0][1]
    texts, values = F.lit(None).cast("string"), F.lit(column.fill).cast(column.type)
    for version, one in found:
        here = F.col("version") == version
        texts, values = F.when(here, one.text).otherwise(texts), F.when(here, one.value).otherwise(values)
    return TextValue(column.name, column.type, texts, values, any(one.may_misfit for _, one in found))


def named_values(values: Mapping[str, TextValue], *, judged: bool) -> dict[str, Expression]:
    """Return the values as columns, by their names.

    :param judged: values that do not fit do not stop the query, see :func:`judgement`.
    """
    return {name: (value.value if judged else value.or_stop()).alias(name) for name, value in values.items()}


def judgement(
    new: Mapping[str, TextValue], old: Mapping[str, TextValue], key: Sequence[str], gone: Expression, moved: Expression
) -> list[Expression]:
    """Return the columns :data:`JUDGED` of a change frame.

    ``misfits`` are the names of the columns that cannot take a value of the event, key columns without a value among
    them; ``texts`` is a struct of the row's texts, of a delete the old ones; ``old_texts`` one of the old key's.

    :param new: values of the row.
    :param old: values from before the event, by the columns that the source tells them of.
    :param gone: the event is a delete.
    :param moved: the event changes the key.
    """
    misfits, texts = [], []
    for name, value in new.items():
        of_row, of_old, was = value.misfit(), F.lit(False), F.lit(None).cast("string")
        if name in old:
            of_old, was = old[name].misfit(), old[name].text
        if name in key:
            of_row = value.value.isNull()
            of_old = F.when(gone, old[name].value.isNull()).otherwise(of_old) if name in old else of_old
        before = (gone | moved) if name in key else gone
        misfits.append(F.when((~gone & of_row) | (before & of_old), F.lit(name)))
        texts.append(F.when(gone, was).otherwise(value.text).alias(name))
    nothing = F.lit(None).cast("string")
    old_texts = [(old[k].text if k in old else nothing).alias(k) for k in key] or [nothing.alias("none")]
    columns = (F.array_compact(F.array(*misfits)), F.struct(*texts), F.struct(*old_texts))
    return [column.alias(name) for name, column in zip(JUDGED, columns, strict=True)]


def finite(text: Expression, sql_type: str, infinity: str) -> Expression:
    """Replace the texts of infinite dates and times.

    :param infinity: ``quarantine`` leaves them, ``null`` makes them null, ``bounds`` the outermost values of the type.
    """
    if infinity == "quarantine" or sql_type not in _BOUNDS:
        return text
    low, high = _BOUNDS[sql_type] if infinity == "bounds" else (None, None)
    return F.when(text == "-infinity", F.lit(low)).when(text == "infinity", F.lit(high)).otherwise(text)
