"""Convert texts of databases to typed columns exactly, and find texts that do not fit."""

from __future__ import annotations

import binascii
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import Accumulator

from lakecdc.model.columns import DECIMAL, ColumnType, arrow_type
from lakecdc.runtime.worker import settle

#: further columns of a change frame with misfits: names of the columns whose value does not fit, including key columns
#: without a value; the texts of these columns by name, for a delete the old ones; the texts of the old key
JUDGED = ("misfits", "texts", "old_texts")
#: column of typed rows of a full load: texts of the values that do not fit, by column, including keys without a value;
#: null if all fit
MISFITS = "misfits"
#: texts of the first and last time that all readers of Iceberg tables accept
OUTERMOST = {
    "date": ("0001-01-01", "9999-12-31"),
    "timestamp_ntz": ("0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"),
    "timestamp": ("0001-01-01 00:00:00+00", "9999-12-31 23:59:59.999999+00"),
}

# column types for which Arrow parses a source type's texts exactly; for exact numbers also decimals
_BY_ARROW = {
    **dict.fromkeys(("int", "bigint", "decimal"), ("int", "bigint")),
    "bit": ("boolean", "bigint"),
    "float": ("float", "double"),
    **{name: (name,) for name in ("double", "date", "timestamp", "timestamp_ntz")},
}
# numerics have fraction zeros, which Arrow refuses in integers
_EXACT_NUMBERS = ("int", "bigint", "decimal", "numeric", "bit")

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
    """Return the values of texts in a type, for any source type; see :data:`Convert`."""
    if kind == "string":
        return texts, ()
    if kind == "binary":
        return texts.cast(pa.binary()), ()
    from lakecdc.model.arrow_columns import ArrowColumn

    return ArrowColumn(ColumnType(kind)).convert(texts.to_pylist())


def is_read_by_arrow(own: str, kind: str) -> bool:
    """Check whether Arrow parses each text exactly or refuses it.

    :param own: Spark SQL type of the values at the source, ``decimal`` without its size, ``numeric``, or ``bit``.
    :param kind: Spark SQL type of the column.
    """
    return kind in _BY_ARROW.get(own, ()) or (own in _EXACT_NUMBERS and bool(DECIMAL.fullmatch(kind)))


def typed(texts: pa.Array, own: str, kind: str) -> tuple[pa.Array, Collection[int]]:
    """Return the values of texts, and the places of those that do not fit; see :func:`is_read_by_arrow`."""
    if is_read_by_arrow(own, kind):
        try:
            return texts.cast(arrow_type(kind)), ()
        except pa.ArrowInvalid:
            # the parser finds the texts that do not fit
            pass
    return parse(texts, kind)


def octets(texts: pa.Array, prefix: int = 0) -> pa.Array:
    """Return the bytes of texts of hexadecimal digits.

    :param prefix: characters before the digits of each text.
    :raises ValueError: a text has an odd number of digits.
    """
    digits = texts.fill_null("")
    if prefix:
        digits = pc.utf8_slice_codeunits(digits, prefix)
    if not len(digits):
        return pa.array([], pa.binary())
    _, offsets, data = digits.buffers()
    bounds = np.frombuffer(offsets, np.int32)[digits.offset : digits.offset + len(digits) + 1]
    edges = bounds - bounds[0]
    if (edges & 1).any():
        raise ValueError("a text of bytes has an odd number of digits")
    raw = binascii.unhexlify(memoryview(data or b"")[bounds[0] : bounds[-1]])
    buffers = [None, pa.py_buffer((edges >> 1).astype(np.int32)), pa.py_buffer(raw)]
    values = pa.Array.from_buffers(pa.binary(), len(digits), buffers)
    return pc.if_else(texts.is_valid(), values, pa.scalar(None, pa.binary())) if texts.null_count else values


def misfits_by_row(columns: Iterable[tuple[str, Collection[int]]]) -> dict[int, list[str]]:
    """Return by row the columns whose value does not fit, from the places of such values by column."""
    by_row: dict[int, list[str]] = {}
    for name, places in columns:
        for place in places:
            names = by_row.setdefault(int(place), [])
            if name not in names:
                names.append(name)
    return by_row


def null_places(values: pa.Array) -> list[int]:
    return np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False)).tolist() if values.null_count else []


@dataclass(frozen=True)
class TypeRows:
    """Convert rows of texts to typed rows and find values that do not fit."""

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

        :param arrays: texts by column; values that were parsed already are unchanged.
        """
        values, misfits = list[pa.Array](), dict[int, dict[str, str | None]]()
        for column, texts in zip(self.columns, arrays, strict=True):
            is_text = pa.types.is_string(texts.type)
            own, places = self.convert(texts, column.base, column.type) if is_text else (texts, ())
            for place in null_places(own) if column.name in self.key else places:
                misfits.setdefault(int(place), {})[column.name] = texts[place].as_py()
            values.append(own)
        kind, count = pa.map_(pa.string(), pa.string()), len(arrays[0])
        misfit_texts = pa.nulls(count, kind)
        if misfits:
            misfit_texts = pa.array([[*misfits[i].items()] if i in misfits else None for i in range(count)], kind)
        return pa.Table.from_arrays([*values, misfit_texts], [*(f"c{i}" for i in range(len(values))), MISFITS])


@dataclass(frozen=True)
class ReadTask:
    """Spark task that reads shares of a full load, given by number, to rows of :attr:`TypeRows.schema`.

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
