"""Type columns of texts as databases write them, exactly, and tell which texts do not fit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecdc.ingest.formats.structs import struct_of, struct_type
from lakecdc.model.columns import ColumnType, arrow_type
from lakecdc.runtime.worker import settle

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
Named = Sequence[tuple[str, "pa.Array"]]


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


@dataclass(frozen=True)
class TypeRows:
    """Task that types rows of texts.

    It yields the column ``row``, and ``unfit``: which value does not fit, in words; with ``judged`` the columns
    :data:`JUDGED` in its place, which also tell of keys without a value.

    :param columns: in the order of the texts.
    :param key: names of the key columns.
    """

    columns: tuple[TextColumn, ...]
    key: tuple[str, ...]
    convert: Convert
    judged: bool = False

    @property
    def schema(self) -> str:
        """Spark SQL schema of the rows that it yields."""
        row = f"row {struct_type({c.name: c.type for c in self.columns})}"
        if not self.judged:
            return f"{row}, unfit string"
        texts, old_texts = (dict.fromkeys(names, "string") for names in ([c.name for c in self.columns], self.key))
        return f"{row}, misfits array<string>, texts {struct_type(texts)}, old_texts {struct_type(old_texts)}"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Type one batch after another."""
        import pyarrow as pa

        settle()
        for batch in batches:
            texts = [(c.name, batch.column(i)) for i, c in enumerate(self.columns)]
            converted = [self.convert(own, c.base, c.type) for c, (_, own) in zip(self.columns, texts, strict=True)]
            values = [(c.name, values) for c, (values, _) in zip(self.columns, converted, strict=True)]
            misfits = [places for _, places in converted]
            row = {"row": struct_of(values, len(batch))}
            judge = self._judgement if self.judged else self._unfit
            yield pa.RecordBatch.from_pydict(row | judge(texts, values, misfits))

    def _unfit(self, texts: Named, _values: Named, misfits: Sequence[Collection[int]]) -> dict[str, pa.Array]:
        import pyarrow as pa

        reasons: dict[int, str] = {}
        for column, (_, own), places in zip(self.columns, texts, misfits, strict=True):
            for place in places:
                reasons.setdefault(place, _reason(column, own[place].as_py()))
        return {"unfit": pa.array([reasons.get(i) for i in range(len(texts[0][1]))], pa.string())}

    def _judgement(self, texts: Named, values: Named, misfits: Sequence[Collection[int]]) -> dict[str, pa.Array]:
        import pyarrow as pa

        count = len(texts[0][1])
        places = [null_places(v) if n in self.key else own for (n, v), own in zip(values, misfits, strict=True)]
        by_row = misfits_by_row((name, own) for (name, _), own in zip(values, places, strict=True))
        return {
            "misfits": pa.array([by_row.get(i, []) for i in range(count)], pa.list_(pa.string())),
            "texts": struct_of(texts, count),
            "old_texts": struct_of([(name, pa.nulls(count, pa.string())) for name in self.key], count),
        }


def _reason(column: TextColumn, text: str) -> str:
    what = f"Column {column.name!r}: the value {text[:40]} does not fit into {column.type}."
    return f"{what} Correct it at the source, or exclude the column."
