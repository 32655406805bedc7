"""Space-filling curves over several columns: rows with close numbers have similar values in every column.

Columns of any type and skew are first mapped to ranks: the share of a sample below the value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lakecdc.contract.rewriting import SpaceFillingCurve

Array = np.ndarray[Any, Any]
# a thousand ranks per column; 60 bits for all columns
_BITS, _ALL_BITS = 10, 60


def rank_bits(columns: int) -> int:
    return min(_BITS, _ALL_BITS // columns)


def place_on(curve: SpaceFillingCurve, ranks: Sequence[Array], bits: int) -> Array:
    """Compute the places of points on a curve; ``ranks`` has an array of ``bits``-bit coordinates per column."""
    coordinates = [np.asarray(column).astype(np.uint64) for column in ranks]
    return _interleaved(_along_hilbert(coordinates, bits) if curve == "hilbert" else coordinates, bits).astype(np.int64)


def _interleaved(coordinates: Sequence[Array], bits: int) -> Array:
    places = np.zeros(len(coordinates[0]), np.uint64)
    for bit in range(bits):
        for number, column in enumerate(reversed(coordinates)):
            places |= (column >> np.uint64(bit) & np.uint64(1)) << np.uint64(bit * len(coordinates) + number)
    return places


def _along_hilbert(coordinates: Sequence[Array], bits: int) -> list[Array]:
    """Transform coordinates so that their interleaved bits are the place on the Hilbert curve.

    Undoes the rotation and mirroring of each cube, largest first (J. Skilling, Programming the Hilbert curve, 2004).
    """
    turned = [column.copy() for column in coordinates]
    first, zero = turned[0], np.uint64(0)
    masks = [np.uint64((1 << bit) - 1) for bit in range(bits - 1, 0, -1)]
    for below in masks:
        for column in turned:
            upper_half = column & (below + np.uint64(1)) != 0
            exchanged = (first ^ column) & below
            first ^= np.where(upper_half, below, exchanged)
            column ^= np.where(upper_half, zero, exchanged)
    for before, column in zip(turned, turned[1:], strict=False):
        column ^= before
    flipped = np.zeros_like(first)
    for below in masks:
        flipped ^= np.where(turned[-1] & (below + np.uint64(1)) != 0, below, zero)
    return [column ^ flipped for column in turned]


@dataclass(frozen=True)
class Ranks:
    """Map the values of a column to their ranks.

    :param starts: values, ascending, at which another rank begins.
    :param numbers: the rank below the first start, then the rank from each start.
    """

    starts: Array
    numbers: Array

    @classmethod
    def of(cls, sample: Array, bits: int) -> Ranks:
        """Build ranks of about equally many non-null sampled values; a value that spans several gets the first."""
        ranked, count = np.sort(sample), 1 << bits
        picks = np.arange(1, count) * len(ranked) // count
        starts, first = np.unique(ranked[picks], return_index=True) if len(ranked) else (ranked, np.arange(0))
        # the lowest value, and nulls, have rank 0
        above_lowest = starts > ranked[0] if len(ranked) else np.zeros(0, bool)
        return cls(starts[above_lowest], np.concatenate([[0], first[above_lowest] + 1]))

    def __call__(self, values: Array) -> Array:
        return self.numbers[np.searchsorted(self.starts, values, side="right")]


@dataclass(frozen=True)
class CurveMap:
    """Place the rows of several units on the units' curves, and know the places at which files begin."""

    curve: SpaceFillingCurve
    bits: int
    ranks: Mapping[int, Sequence[Ranks]]
    cuts: Mapping[int, list[int]]

    @classmethod
    def of(cls, curve: SpaceFillingCurve, sample: pa.Table, outputs: Sequence[int]) -> CurveMap:
        """Build curves from a sample (unit, sort columns as integers, floats or bytes) and the files of each unit."""
        units = sample.column(0).to_numpy()
        columns = [_values(column.combine_chunks()) for column in sample.columns[1:]]
        bits = rank_bits(len(columns))
        ranks: dict[int, list[Ranks]] = {}
        cuts: dict[int, list[int]] = {}
        for unit, count in enumerate(outputs):
            chosen = units == unit
            ranks[unit] = [Ranks.of(values[chosen & ~nulls], bits) for values, nulls in columns]
            places = np.sort(place_on(curve, _ranked(ranks[unit], columns, chosen), bits))
            picks = np.arange(1, count) * len(places) // count
            cuts[unit] = np.unique(places[picks]).tolist() if len(places) else []
        return cls(curve, bits, ranks, cuts)

    def places(self, units: pa.Array, *columns: pa.Array) -> pa.Array:
        """Return the place of each row on the curve of its unit; ``columns`` are as in the sample."""
        numbers, values = units.to_numpy(zero_copy_only=False), [_values(column) for column in columns]
        places = np.zeros(len(numbers), np.int64)
        for unit in np.unique(numbers):
            chosen = numbers == unit
            places[chosen] = place_on(self.curve, _ranked(self.ranks[int(unit)], values, chosen), self.bits)
        return pa.array(places)


def _ranked(ranks: Sequence[Ranks], columns: Sequence[tuple[Array, Array]], chosen: Array) -> list[Array]:
    """Return the ranks of chosen rows; nulls have the lowest rank."""
    return [
        np.where(nulls[chosen], 0, rank(values[chosen])) for rank, (values, nulls) in zip(ranks, columns, strict=True)
    ]


def _values(column: pa.Array) -> tuple[Array, Array]:
    """Return the values with a filler for nulls, and a mask of the nulls."""
    is_bytes = pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)
    filler: Any = b"" if is_bytes else 0
    filled = column.fill_null(filler).to_numpy(zero_copy_only=False)
    return filled, column.is_null().to_numpy(zero_copy_only=False)
