"""Convert values of Arrow columns to integers that compare like the values in Spark, and order rows by them."""

from __future__ import annotations

import functools
import os.path
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecdc.model.iceberg_columns import storage

Array = np.ndarray[Any, Any]
# number of rows that show whether a column's values repeat
_SAMPLE = 20_000
_WORD_BITS, _WORD_BYTES = 64, 8
_HIGHEST, _SIGN = np.int64(np.iinfo(np.int64).max), np.uint64(1 << 63)
# maximum digits of decimals in 64 bits
_DIGITS = 18


@dataclass(frozen=True)
class Word:
    """Unsigned integers of limited bits, one for each row, that ascend with an order.

    :param among: computes the integers of given rows, comparable only among these; replaces ``numbers``.
    """

    numbers: Array
    bits: int
    among: Callable[[Array], Array] | None = None


@dataclass(frozen=True)
class FieldValues:
    """Values of one field of an order: integers that ascend with it, or bytes.

    :param numbers: signed, most significant first; empty for bytes.
    :param nulls: mask of the null rows; None without nulls.
    """

    numbers: tuple[Array, ...]
    bytes: pa.Array
    nulls: Array | None
    descending: bool
    nulls_first: bool

    @classmethod
    def of(cls, values: pa.Array, descending: bool, nulls_first: bool) -> FieldValues:
        """Convert values of a column that is not nested."""
        values = storage(values)
        nulls = values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None
        numbers = _numbers(values)
        return cls(
            tuple(~part if descending else part for part in numbers),
            None if numbers else values.cast(pa.large_binary()),
            nulls,
            descending,
            nulls_first,
        )

    def key(self, place: int) -> tuple[Any, ...]:
        """Return a comparable key of one row."""
        if self.nulls is not None and self.nulls[place]:
            return (0 if self.nulls_first else 2,)
        if self.numbers:
            return (1, *(int(part[place]) for part in self.numbers))
        value = self.bytes[place].as_py()
        return (1, _Descending(value) if self.descending else value)

    def words(self) -> list[Word]:
        """Return words that ascend with the order of these rows, most significant first."""
        if self.nulls is None:
            return self._words()
        nulls = (~self.nulls if self.nulls_first else self.nulls).astype(np.uint64)
        return [Word(nulls, 1), *self._words()]

    def _words(self) -> list[Word]:
        if self.numbers:
            return [self._word(part) for part in self.numbers]
        if _repeats(self.bytes):
            return [self._word(self._directed(_ranks(self.bytes)))]
        begins, lengths = _beginnings(self.bytes)
        words = [self._word(self._directed(begins)), self._word(self._directed(lengths))]
        if len(lengths) and lengths.max() > _WORD_BYTES:
            words.append(Word(words[0].numbers, 0, self._among))
        return words

    def _directed(self, numbers: Array) -> Array:
        return ~numbers if self.descending else numbers

    def _word(self, numbers: Array) -> Word:
        """Return signed integers as a word of the fewest bits."""
        if not len(numbers):
            return Word(numbers.view(np.uint64), 0)
        if self.nulls is not None:
            lowest = numbers[~self.nulls].min(initial=_HIGHEST)
            numbers = np.where(self.nulls, lowest, numbers)
        lowest = numbers.min()
        # the difference of two signed integers fits an unsigned one
        word = numbers.view(np.uint64) - np.uint64(int(lowest) % (1 << _WORD_BITS))
        return Word(word, int(word.max()).bit_length())

    def _among(self, places: Array) -> Array:
        ranks = pc.rank(self.bytes.take(places), tiebreaker="dense").to_numpy()
        return np.uint64(len(places)) - ranks if self.descending else ranks


@functools.total_ordering
@dataclass(frozen=True)
class _Descending:
    """A value with reversed comparison."""

    value: bytes

    def __lt__(self, other: _Descending) -> bool:
        return other.value < self.value


def places_of(words: Sequence[Word], rows: int) -> Array | None:
    """Return the places of rows in the order of their words, stable; None if all are in order."""
    packed = _packed(words)
    if not packed:
        return None
    first = packed[0]
    if bool((first.numbers[1:] >= first.numbers[:-1]).all()):
        places = np.arange(rows)
    else:
        places = _ascending(first.numbers, first.bits)
    unsettled, numbers = np.arange(rows), first.numbers[places]
    same = numbers[1:] == numbers[:-1]
    for word in packed[1:]:
        if not same.any():
            break
        # the next word orders rows that are equal so far
        is_tied, groups = _groups(same)
        unsettled = unsettled[is_tied]
        tied = places[unsettled]
        numbers = word.among(tied) if word.among else word.numbers[tied]
        order = _ascending_within(groups, numbers)
        places[unsettled], numbers = tied[order], numbers[order]
        same = (numbers[1:] == numbers[:-1]) & (groups[1:] == groups[:-1])
    return None if bool((places[1:] > places[:-1]).all()) else places


def _packed(words: Sequence[Word]) -> list[Word]:
    """Join words while they fit into one."""
    packed: list[Word] = []
    for word in words:
        if not word.bits and not word.among:
            continue
        last = packed[-1] if packed else None
        if last is None or last.among or word.among or last.bits + word.bits > _WORD_BITS:
            packed.append(word)
        else:
            packed[-1] = Word(last.numbers << np.uint64(word.bits) | word.numbers, last.bits + word.bits)
    return packed


def _ascending_within(groups: Array, numbers: Array) -> Array:
    """Return the places of rows by their numbers, within groups that ascend already."""
    bits = int(numbers.max()).bit_length()
    group_bits = int(groups[-1]).bit_length()
    if group_bits + bits <= _WORD_BITS:
        return _ascending(groups << np.uint64(bits) | numbers, group_bits + bits)
    places = _ascending(numbers, bits)
    return places[_ascending(groups[places], group_bits)]


def _ascending(numbers: Array, bits: int) -> Array:
    """Return the places of numbers of so many bits in their order, stable."""
    # unstable sorts are several times as fast, and make no difference for distinct values
    if bits + len(numbers).bit_length() <= _WORD_BITS:
        return _sorted_with(numbers, np.arange(len(numbers)))
    places = np.argsort(numbers)
    ordered = numbers[places]
    same = ordered[1:] == ordered[:-1]
    if same.any():
        is_tied, groups = _groups(same)
        places[is_tied] = _sorted_with(groups, places[is_tied])
    return places


def _sorted_with(numbers: Array, places: Array) -> Array:
    """Return places in the order of their numbers, then their own; a number and a place must fit into one word."""
    bits = int(places.max(initial=0)).bit_length()
    both = numbers << np.uint64(bits) | places.view(np.uint64)
    both.sort()
    return (both & np.uint64((1 << bits) - 1)).view(np.int64)


def _groups(same: Array) -> tuple[Array, Array]:
    """Return a mask of the rows that equal a neighbour, and the ascending numbers of their groups.

    :param same: for each row but the first, whether it equals the row before.
    """
    is_tied = np.append(same, False) | np.append(False, same)
    return is_tied, np.cumsum(np.append(True, ~same))[is_tied].astype(np.uint64)


def _numbers(values: pa.Array) -> tuple[Array, ...]:
    """Return 64-bit integers in the order of the values, most significant first, any for null; empty for bytes."""
    kind = values.type
    if pa.types.is_floating(kind):
        floats = values.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False)
        # the sum turns -0.0 into 0.0; Spark sorts NaN above all numbers
        bits = np.where(np.isnan(floats), np.nan, floats + 0.0).view(np.int64)
        return (bits ^ ((bits >> 63) & _HIGHEST),)
    if pa.types.is_decimal128(kind):
        return _decimal_numbers(values)
    if pa.types.is_boolean(kind):
        values = values.cast(pa.int8())
    elif pa.types.is_date32(kind) or pa.types.is_time32(kind):
        values = values.cast(pa.int32())
    elif not (pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_time64(kind)):
        return ()
    return (values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False),)


def _decimal_numbers(values: pa.Array) -> tuple[Array, ...]:
    """Return the unscaled values, in two halves if they may not fit into one."""
    if not len(values):
        return (np.zeros(0, np.int64),)
    halves = np.frombuffer(values.buffers()[1], "<i8").reshape(-1, 2)[values.offset : values.offset + len(values)]
    low = np.ascontiguousarray(halves[:, 0])
    if values.type.precision <= _DIGITS:
        return (low,)
    return np.ascontiguousarray(halves[:, 1]), _signed(low.view(np.uint64))


def _signed(numbers: Array) -> Array:
    """Convert unsigned integers to signed integers in the same order."""
    return (numbers ^ _SIGN).view(np.int64)


def _repeats(values: pa.Array) -> bool:
    head = values.slice(0, _SAMPLE)
    return pc.count_distinct(head).as_py() * 2 <= len(head)


def _ranks(values: pa.Array) -> Array:
    """Return numbers in the order of repeating values, arbitrary for null."""
    encoded = values.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary).to_numpy()
    ranks = np.zeros(len(order) + 1, np.int64)
    ranks[order] = np.arange(len(order))
    return ranks[encoded.indices.fill_null(len(order)).to_numpy(zero_copy_only=False)]


def _beginnings(values: pa.Array) -> tuple[Array, Array]:
    """Return the first bytes after the common prefix as integers, and the number of remaining bytes.

    Values with the same integer and up to eight bytes sort by length.
    """
    if not len(values):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    ends = np.frombuffer(values.buffers()[1], np.int64)[values.offset : values.offset + len(values) + 1]
    stored = values.buffers()[2] or b""
    data = np.append(np.frombuffer(stored, np.uint8)[ends[0] : ends[-1]], np.zeros(_WORD_BYTES, np.uint8))
    extremes = [value for value in pc.min_max(values).as_py().values() if value]
    shared = len(os.path.commonprefix(extremes)) if len(extremes) == 2 else 0
    begins = np.minimum(ends[:-1] + shared, ends[1:])
    lengths = np.minimum(ends[1:] - begins, _WORD_BYTES + 1)
    windows = np.lib.stride_tricks.sliding_window_view(data, _WORD_BYTES)
    numbers = windows[begins - ends[0]].view(">u8").ravel().astype(np.uint64)
    # zero the bytes of the next value
    beyond = 8 * np.maximum(_WORD_BYTES - lengths, 0)
    numbers = np.where(lengths > 0, numbers >> np.minimum(beyond, 63).astype(np.uint64) << beyond.astype(np.uint64), 0)
    return _signed(numbers), lengths
