"""Order of rows in Arrow tables, equal to that of Spark's sort by the same fields."""

from __future__ import annotations

import bisect
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecdc.model.columns import arrow_type
from lakecdc.writer.transforms import Transform

if TYPE_CHECKING:
    from lakecdc.iceberg.sort_order import SortOrder

Array = np.ndarray[Any, Any]
#: comparable and picklable place of a row in an order
Key = tuple[Any, ...]
# rows to judge whether a column's values repeat
_SAMPLE = 20_000
_WORD_BITS = 64
# digits of the decimals that fit 64 bits
_DIGITS = 18


@dataclass(frozen=True)
class RunField:
    """One field of an order.

    :param source: name of a column of the rows.
    :param transform: of the column; None for its own values.
    """

    source: str
    transform: Transform | None = None
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True)
class RunOrder:
    """Order of rows; without fields they keep theirs.

    :param fields: most significant first.
    """

    fields: tuple[RunField, ...] = ()

    @classmethod
    def of(cls, order: SortOrder, types: Mapping[str, str]) -> RunOrder | None:
        """Return the fields of a sort order, without its curve; None if tasks cannot evaluate one.

        :param types: Spark SQL types of the columns by name, which must be those of the rows in Arrow as well.
        """
        fields = []
        for field in order.fields:
            kind, _, width = field.transform.partition("[")
            sql_type = types.get(field.column)
            if sql_type is None or arrow_type(sql_type) is None:
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
        """Sort rows; equal ones keep their order."""
        places = _places([word for values in self._values(rows) for word in values.words()], rows.num_rows)
        return rows if places is None else rows.take(places)

    def key(self, rows: pa.Table, place: int) -> Key:
        """Return the key of one row; keys compare as the order does."""
        return self.keys(rows.slice(place, 1))(0)

    def keys(self, rows: pa.Table) -> Keys:
        """Return the keys of rows."""
        return Keys(self._values(rows), rows.num_rows)

    def cut(self, rows: pa.Table, cuts: Sequence[Key]) -> list[tuple[int, pa.Table]]:
        """Slice sorted rows at ascending keys; a row belongs to the number of cuts that are not above it."""
        keys, pieces, begin = self.keys(rows), [], 0
        for number in range(len(cuts) + 1):
            end = keys.count_below(cuts[number], begin) if number < len(cuts) else rows.num_rows
            if end > begin:
                pieces.append((number, rows.slice(begin, end - begin)))
            begin = end
        return pieces

    def cuts(self, sample: pa.Table, outputs: int) -> list[Key]:
        """Return the distinct keys at which outputs but the first begin; fewer where values repeat a lot.

        :param sample: rows with the order's columns.
        """
        if not sample.num_rows:
            return []
        keys = self.keys(self.sorted(sample.select(self.sources)))
        picked = dict.fromkeys(keys(sample.num_rows * number // outputs) for number in range(1, outputs))
        return [key for key in picked if key > keys(0)]

    def _values(self, rows: pa.Table) -> list[_Values]:
        return [_Values.of(field, rows[field.source]) for field in self.fields]


_TRANSFORMS = ("bucket", "truncate", "year", "month", "day", "hour")


class Keys:
    """Keys of rows, made one at a time."""

    def __init__(self, values: Sequence[_Values], rows: int) -> None:
        self._values, self._rows = values, rows

    def __len__(self) -> int:
        return self._rows

    def __call__(self, place: int) -> Key:
        return tuple(part for values in self._values for part in values.key(place))

    def count_below(self, key: Key, begin: int = 0) -> int:
        """Count the sorted rows below a key, of which at least ``begin`` are known to be."""
        return bisect.bisect_left(range(self._rows), key, begin, key=self)

    def count_up_to(self, key: Key) -> int:
        """Count the sorted rows that are not above a key."""
        return bisect.bisect_right(range(self._rows), key, key=self)


@functools.total_ordering
@dataclass(frozen=True)
class _Descending:
    """A value that compares the other way round."""

    value: Any

    def __lt__(self, other: _Descending) -> bool:
        return bool(other.value < self.value)


@dataclass(frozen=True)
class _Values:
    """Values of one field: 64-bit integers that ascend with the order, or Arrow's own if they do not fit.

    :param nulls: which rows are null; None if none is.
    """

    field: RunField
    values: Array | pa.Array
    nulls: Array | None

    @classmethod
    def of(cls, field: RunField, column: pa.ChunkedArray) -> _Values:
        array = column.combine_chunks()
        if field.transform is not None:
            array = field.transform.values(array)
        nulls = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
        numbers = _numbers(array)
        if numbers is None:
            return cls(field, _bytes(array), nulls)
        return cls(field, ~numbers if field.descending else numbers, nulls)

    def key(self, place: int) -> Key:
        """Return the key of one row: whether it is null, as the order has it, and the value."""
        if self.nulls is not None and self.nulls[place]:
            return (0 if self.field.nulls_first else 2, 0)
        if isinstance(self.values, np.ndarray):
            return (1, int(self.values[place]))
        value = self.values[place].as_py()
        return (1, _Descending(value) if self.field.descending else value)

    def words(self) -> list[tuple[Array, int]]:
        """Return unsigned integers that ascend with the order among these rows, with the bits that they need."""
        words = []
        if self.nulls is not None:
            words.append(((~self.nulls if self.field.nulls_first else self.nulls).astype(np.uint64), 1))
        if isinstance(self.values, np.ndarray):
            numbers = self.values
        else:
            ranks = _ranks(self.values)
            numbers = ~ranks if self.field.descending else ranks
        if len(numbers):
            if self.nulls is not None:
                lowest = numbers[~self.nulls].min(initial=np.iinfo(np.int64).max)
                numbers = np.where(self.nulls, lowest, numbers)
            else:
                lowest = numbers.min()
            # the difference of two signed integers fits an unsigned one
            word = numbers.view(np.uint64) - np.uint64(int(lowest) % (1 << _WORD_BITS))
            words.append((word, int(word.max()).bit_length()))
        return words


def _numbers(array: pa.Array) -> Array | None:
    """Return 64-bit integers in the order of the values, any for null; None if the type has more."""
    kind = array.type
    if pa.types.is_floating(kind):
        floats = array.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False)
        # the sum turns -0.0 into 0.0; Spark has one NaN, above all others
        bits = np.where(np.isnan(floats), np.nan, floats + 0.0).view(np.int64)
        return bits ^ ((bits >> 63) & np.int64(np.iinfo(np.int64).max))
    if pa.types.is_decimal128(kind):
        return _low_words(array) if kind.precision <= _DIGITS else None
    if pa.types.is_boolean(kind):
        array = array.cast(pa.int8())
    elif pa.types.is_date32(kind) or pa.types.is_time32(kind):
        array = array.cast(pa.int32())
    elif not (pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_time64(kind)):
        return None
    return array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)


def _low_words(array: pa.Array) -> Array:
    """Return the lower halves of decimals, which are their unscaled values if those are small."""
    if not len(array):
        return np.zeros(0, np.int64)
    return np.frombuffer(array.buffers()[1], "<i8")[::2][array.offset : array.offset + len(array)]


def _bytes(array: pa.Array) -> pa.Array:
    """Return texts as bytes, and other types unchanged."""
    if pa.types.is_string(array.type):
        return array.view(pa.binary())
    return array.view(pa.large_binary()) if pa.types.is_large_string(array.type) else array


def _ranks(array: pa.Array) -> Array:
    """Return numbers in the order of the values, any for null."""
    head = array.slice(0, _SAMPLE)
    if pc.count_distinct(head).as_py() * 2 > len(head):
        return pc.rank(array, tiebreaker="dense").to_numpy().astype(np.int64)
    encoded = array.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary).to_numpy()
    ranks = np.zeros(len(order) + 1, np.int64)
    ranks[order] = np.arange(len(order))
    return ranks[encoded.indices.fill_null(len(order)).to_numpy(zero_copy_only=False)]


def _places(words: Sequence[tuple[Array, int]], rows: int) -> Array | None:
    """Return the places of rows in the order of their words; None if they are in order."""
    packed: list[Array] = []
    used = _WORD_BITS
    for word, bits in words:
        if not bits:
            continue
        if used + bits <= _WORD_BITS:
            packed[-1], used = packed[-1] << np.uint64(bits) | word, used + bits
        else:
            packed.append(word)
            used = bits
    if not packed:
        return None
    if len(packed) > 1:
        return np.lexsort(packed[::-1])
    [word] = packed
    if bool((word[1:] >= word[:-1]).all()):
        return None
    place_bits = rows.bit_length()
    if used + place_bits <= _WORD_BITS:
        # values with their places are distinct, so that the fast sort need not be stable
        both = word << np.uint64(place_bits) | np.arange(rows, dtype=np.uint64)
        both.sort()
        return both & np.uint64((1 << place_bits) - 1)
    return np.argsort(word, kind="stable")
