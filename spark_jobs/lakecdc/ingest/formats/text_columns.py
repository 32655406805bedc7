"""Type columns of texts as databases write them, exactly, and tell which texts do not fit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecdc.model.columns import ColumnType, arrow_type
from lakecdc.runtime.worker import settle
from lakecdc.sql import quoted_column

if TYPE_CHECKING:
    import pyarrow as pa

#: columns that a change frame with misfits has besides the others: names of the columns that cannot take a value of the
#: event, key columns without a value among them; a struct of the row's texts, of a delete the old ones; one of the
#: texts of the old key
JUDGED = ("misfits", "texts", "old_texts")
#: texts of the first and the last moment that every reader of Iceberg tables takes
OUTERMOST = {
    "date": ("0001-01-01", "9999-12-31"),
    "timestamp_ntz": ("0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"),
    "timestamp": ("0001-01-01 00:00:00+00", "9999-12-31 23:59:59.999999+00"),
}

#: values of texts: from the texts, the name of the source's type and the Spark SQL type of the column; null for texts
#: that do not fit, whose places are told as well
Convert = Callable[["pa.Array", str, str], tuple["pa.Array", Collection[int]]]


@dataclass(frozen=True)
class TextColumn:
    """A column of the target whose values come as texts.

    :param base: name of its type at the source.
    :param type: Spark SQL type.
    """

    name: str
    base: str
    type: str


def parse(texts: pa.Array, kind: str) -> tuple[pa.Array, Collection[int]]:
    """Return the values of texts in a type, whatever type they have at the source; see :data:`Convert`."""
    import pyarrow as pa

    if kind == "string":
        return texts, ()
    if kind == "binary":
        return texts.cast(pa.binary()), ()
    from lakecdc.model.arrow_columns import ArrowColumn

    return ArrowColumn(ColumnType(kind)).convert(texts.to_pylist())


def cast_or_parse(texts: pa.Array, kind: str) -> tuple[pa.Array, Collection[int]]:
    """Return the values of texts of which Arrow reads each as the type's parser does, or refuses it."""
    import pyarrow as pa

    try:
        return texts.cast(arrow_type(kind)), ()
    except pa.ArrowInvalid:
        return parse(texts, kind)


def misfits_by_row(columns: Iterable[tuple[str, Collection[int]]]) -> dict[int, list[str]]:
    """Return the names of the columns that cannot take a value, by row.

    :param columns: names with the rows whose values do not fit.
    """
    found: dict[int, list[str]] = {}
    for name, places in columns:
        for place in places:
            names = found.setdefault(int(place), [])
            if name not in names:
                names.append(name)
    return found


def null_places(values: pa.Array) -> list[int]:
    """Return the places of nulls."""
    import numpy as np

    return np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False)).tolist() if values.null_count else []


def struct_of(columns: Sequence[tuple[str, pa.Array]], count: int, mask: pa.Array | None = None) -> pa.Array:
    """Return a struct; of no columns one of a null called ``none``, as Spark stores no struct without fields.

    :param mask: where it is null.
    """
    import pyarrow as pa

    named = columns or [("none", pa.nulls(count, pa.string()))]
    return pa.StructArray.from_arrays([values for _, values in named], [name for name, _ in named], mask=mask)


def texts_type(names: Sequence[str]) -> str:
    """Return the Spark SQL type of a struct of texts; see :func:`struct_of`."""
    return f"struct<{', '.join(f'{quoted_column(name)}: string' for name in names) or 'none: string'}>"


@dataclass(frozen=True)
class TypeRows:
    """Rows of texts in, rows of values out, with what does not fit as :data:`JUDGED`; runs in a task.

    ``unfit`` says so as well, in words, but for keys without a value.

    :param columns: in the order of the texts.
    :param key: names of the key columns, which must have a value.
    """

    columns: tuple[TextColumn, ...]
    key: tuple[str, ...]
    convert: Convert

    @property
    def schema(self) -> str:
        """Spark SQL schema of what comes out."""
        row = ", ".join(f"{quoted_column(c.name)}: {c.type}" for c in self.columns)
        texts, old_texts = texts_type([c.name for c in self.columns]), texts_type(self.key)
        return f"row struct<{row}>, unfit string, misfits array<string>, texts {texts}, old_texts {old_texts}"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Type one batch after another."""
        import pyarrow as pa

        settle()
        for batch in batches:
            texts = batch.columns[: len(self.columns)]
            values, misfits = [], []
            unfit: dict[int, str] = {}
            for column, own in zip(self.columns, texts, strict=True):
                converted, wrong = self.convert(own, column.base, column.type)
                values.append((column.name, converted))
                misfits.append((column.name, null_places(converted) if column.name in self.key else wrong))
                for place in wrong:
                    unfit.setdefault(place, _reason(column, own[place].as_py()))
            wrong_in = misfits_by_row(misfits)
            count = len(batch)
            found = {
                "row": struct_of(values, count),
                "unfit": pa.array([unfit.get(i) for i in range(count)], pa.string()),
                "misfits": pa.array([wrong_in.get(i, []) for i in range(count)], pa.list_(pa.string())),
                "texts": struct_of([(c.name, own) for c, own in zip(self.columns, texts, strict=True)], count),
                "old_texts": struct_of([(name, pa.nulls(count, pa.string())) for name in self.key], count),
            }
            yield pa.RecordBatch.from_pydict(found)


def _reason(column: TextColumn, text: str) -> str:
    what = f"Column {column.name!r}: the value {text[:40]} does not fit into {column.type}."
    return f"{what} Correct it at the source, or exclude the column."
