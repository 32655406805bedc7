"""Type columns of texts as databases write them, exactly, and find which texts do not fit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark import Accumulator

from lakecdc.model.columns import ColumnType, arrow_type
from lakecdc.runtime.worker import settle

#: columns that a change frame with misfits has besides the others: names of the columns that cannot take a value of the
#: event, key columns without a value among them; these columns' texts by name, of a delete the old ones; those of the
#: old key
JUDGED = ("misfits", "texts", "old_texts")
#: column of typed rows of a full load: texts of the values that do not fit, by column, keys without a value among them;
#: null where all fit
MISFITS = "misfits"
#: texts of the first and the last moment that every reader of Iceberg tables takes
OUTERMOST = {
    "date": ("0001-01-01", "9999-12-31"),
    "timestamp_ntz": ("0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"),
    "timestamp": ("0001-01-01 00:00:00+00", "9999-12-31 23:59:59.999999+00"),
}

#: returns the values of texts, given the name of the source's type and the Spark SQL type of the column; null for texts
#: that do not fit, and their places
Convert = Callable[["pa.Array", str, str], tuple["pa.Array", Collection[int]]]


@dataclass(frozen=True)
class TextColumn:
    """A column of the target whose values come as texts, with the name of its type at the source and in Spark SQL."""

    name: str
    base: str
    type: str


def parse(texts: pa.Array, kind: str) -> tuple[pa.Array, Collection[int]]:
    """Return the values of texts in a type, whatever type they have at the source; see :data:`Convert`."""
    if kind == "string":
        return texts, ()
    if kind == "binary":
        return texts.cast(pa.binary()), ()
    from lakecdc.model.arrow_columns import ArrowColumn

    return ArrowColumn(ColumnType(kind)).convert(texts.to_pylist())


def cast_or_parse(texts: pa.Array, kind: str) -> tuple[pa.Array, Collection[int]]:
    """Return the values of texts of a type that Arrow casts as the type's parser does, or refuses."""
    try:
        return texts.cast(arrow_type(kind)), ()
    except pa.ArrowInvalid:
        return parse(texts, kind)


def misfits_by_row(columns: Iterable[tuple[str, Collection[int]]]) -> dict[int, list[str]]:
    """Return by row the columns that cannot take a value, from the places of such values by column."""
    found: dict[int, list[str]] = {}
    for name, places in columns:
        for place in places:
            names = found.setdefault(int(place), [])
            if name not in names:
                names.append(name)
    return found


def null_places(values: pa.Array) -> list[int]:
    return np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False)).tolist() if values.null_count else []


@dataclass(frozen=True)
class TypeRows:
    """Types rows of texts and finds which values do not fit."""

    columns: tuple[TextColumn, ...]
    key: tuple[str, ...]
    convert: Convert

    @property
    def schema(self) -> str:
        """Return the Spark SQL schema of :meth:`typed`."""
        values = ", ".join(f"c{i} {c.type}" for i, c in enumerate(self.columns))
        return f"{values}, {MISFITS} map<string, string>"

    def typed(self, arrays: Sequence[pa.Array]) -> pa.Table:
        """Return rows of values, columns ``c0`` …, and :data:`MISFITS`.

        :param arrays: texts by column; values of a column that have been read exactly stay as they are.
        """
        values, misfits = list[pa.Array](), dict[int, dict[str, str | None]]()
        for column, texts in zip(self.columns, arrays, strict=True):
            is_text = pa.types.is_string(texts.type)
            own, places = self.convert(texts, column.base, column.type) if is_text else (texts, ())
            for place in null_places(own) if column.name in self.key else places:
                misfits.setdefault(int(place), {})[column.name] = texts[place].as_py()
            values.append(own)
        kind, count = pa.map_(pa.string(), pa.string()), len(arrays[0])
        told = pa.nulls(count, kind)
        if misfits:
            told = pa.array([[*misfits[i].items()] if i in misfits else None for i in range(count)], kind)
        return pa.Table.from_arrays([*values, told], [*(f"c{i}" for i in range(len(values))), MISFITS])


@dataclass(frozen=True)
class ReadTask:
    """Task of Spark that reads a full load: numbers of shares in, rows of :attr:`TypeRows.schema` out.

    :param read: see ``change.Load``.
    :param left_out: counts the rows that do not fit.
    """

    read: Callable[[int], Iterator[pa.Table]]
    left_out: Accumulator[int]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        for table in (table for batch in batches for number in batch[0].to_pylist() for table in self.read(number)):
            self.left_out.add(len(table) - table[MISFITS].null_count)
            yield from table.to_batches()
