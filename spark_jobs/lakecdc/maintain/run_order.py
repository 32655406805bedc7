"""Order rows of Arrow tables as Spark's sort by the same fields does."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakecdc.maintain.sort_words import FieldValues, places_of
from lakecdc.writer.transforms import Transform

if TYPE_CHECKING:
    from lakecdc.iceberg.sort_order import SortOrder

_TRANSFORMS = ("bucket", "truncate", "year", "month", "day", "hour")
#: comparable and picklable key of a row in an order
Key = tuple[Any, ...]


@dataclass(frozen=True)
class RunField:
    """One field of an order.

    :param source: name of a column of the rows.
    :param transform: of the column; None for its plain values.
    """

    source: str
    transform: Transform | None = None
    descending: bool = False
    nulls_first: bool = True

    def values(self, rows: pa.Table) -> FieldValues:
        values = rows[self.source].combine_chunks()
        values = values if self.transform is None else self.transform.values(values)
        return FieldValues.of(values, self.descending, self.nulls_first)


@dataclass(frozen=True)
class RunOrder:
    """Order of rows; without fields rows keep their order.

    :param fields: most significant first.
    """

    fields: tuple[RunField, ...] = ()

    @classmethod
    def of(cls, order: SortOrder, types: Mapping[str, str]) -> RunOrder | None:
        """Return the fields of a sort order, without its curve; None if tasks cannot evaluate a field.

        :param types: SQL types of the columns that are not nested, see
            :attr:`~lakecdc.model.iceberg_columns.IcebergColumn.sql_type`; the rows in Arrow have the same types.
        """
        fields = []
        for field in order.fields:
            kind, _, width = field.transform.partition("[")
            sql_type = types.get(field.column)
            if sql_type is None:
                return None
            transform = None
            if kind != "identity":
                transform = Transform(kind, field.column, int(width.rstrip("]") or 0))
                if kind not in _TRANSFORMS or not transform.takes(sql_type):
                    return None
            fields.append(RunField(field.column, transform, field.descending, field.nulls_first))
        return cls(tuple(fields))

    @property
    def sources(self) -> list[str]:
        """Return the columns that the order needs."""
        return list(dict.fromkeys(field.source for field in self.fields))

    def sorted(self, rows: pa.Table) -> pa.Table:
        """Sort rows; equal rows keep their order."""
        return self.between(rows, None, None)

    def between(self, rows: pa.Table, low: Key | None, high: Key | None) -> pa.Table:
        """Sort the rows from one key to below another; without keys, all rows."""
        values, count = self._values(rows), rows.num_rows
        places = places_of([word for part in values for word in part.words()], count)
        ordered, key = range(count) if places is None else places, Keys(values, count)
        begin = 0 if low is None else bisect.bisect_left(ordered, low, key=key)
        end = count if high is None else bisect.bisect_left(ordered, high, begin, key=key)
        return rows.slice(begin, end - begin) if places is None else rows.take(places[begin:end])

    def keys(self, rows: pa.Table) -> Keys:
        return Keys(self._values(rows), rows.num_rows)

    def cut(self, rows: pa.Table, cuts: Sequence[Key]) -> list[tuple[int, pa.Table]]:
        """Slice sorted rows at ascending keys; a slice's number is that of the cuts not above its rows."""
        keys, pieces, begin = self.keys(rows), [], 0
        for number in range(len(cuts) + 1):
            end = keys.count_below(cuts[number], begin) if number < len(cuts) else rows.num_rows
            if end > begin:
                pieces.append((number, rows.slice(begin, end - begin)))
            begin = end
        return pieces

    def cuts(self, sample: pa.Table, outputs: int) -> list[Key]:
        """Return the distinct keys at which outputs begin, except the first; fewer if values repeat a lot.

        :param sample: rows with the order's columns.
        """
        if not sample.num_rows:
            return []
        keys = self.keys(self.sorted(sample.select(self.sources)))
        picked = dict.fromkeys(keys(sample.num_rows * number // outputs) for number in range(1, outputs))
        return [key for key in picked if key > keys(0)]

    def _values(self, rows: pa.Table) -> list[FieldValues]:
        return [field.values(rows) for field in self.fields]


class Keys:
    """Keys of rows, built one at a time."""

    def __init__(self, values: Sequence[FieldValues], rows: int) -> None:
        self._values, self._rows = values, rows

    def __call__(self, place: int) -> Key:
        return tuple(part for values in self._values for part in values.key(place))

    def count_below(self, key: Key, begin: int) -> int:
        """Count the sorted rows below a key; the first ``begin`` rows are known to be below."""
        return bisect.bisect_left(range(self._rows), key, begin, key=self)
