"""Place rows in the files of a rewrite: the order of rows, and the keys at which each file begins."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecdc.maintain.curves import CurveMap
from lakecdc.maintain.run_order import RunField, RunOrder
from lakecdc.model.iceberg_columns import storage

if TYPE_CHECKING:
    from lakecdc.contract.rewriting import Curve, SpaceFillingCurve
    from lakecdc.maintain.run_order import Key
    from lakecdc.maintain.selection import Unit

# column with a row's place on a curve
_PLACE = "_lakecdc_place"
# sampled rows per new file: to cut between files, and for the shape of a curve
_SAMPLED, _SAMPLED_OF_CURVE = 200, 1000
# bytes of files whose rows are sorted together, as many as become a row group or two, and sampled rows for them
_PART_BYTES, _SAMPLED_OF_PART = 20 * 1024 * 1024, 40


@dataclass(frozen=True)
class Placing:
    """The order of rows, and the keys at which each unit's files begin.

    :param order: of the rows, along the curve first if there is one.
    :param cuts: keys at which each file but the first begins, by unit.
    :param parts: keys at which each part but the first of a unit's rows begins: parts are sorted one after another.
    :param curve: the curve of the units.
    :param columns: the columns of the curve.
    """

    order: RunOrder
    cuts: Mapping[int, Sequence[Key]] = field(default_factory=dict, repr=False)
    parts: Mapping[int, Sequence[Key]] = field(default_factory=dict, repr=False)
    curve: CurveMap | None = field(default=None, repr=False)
    columns: tuple[str, ...] = ()

    def placed(self, unit: int, rows: pa.Table) -> pa.Table:
        """Return rows of a unit with their sort columns: for a curve, with their places."""
        if self.curve is None:
            return rows
        units = pa.repeat(pa.scalar(unit, pa.int32()), rows.num_rows)
        return rows.append_column(_PLACE, self.curve.places(units, *(_number(rows[name]) for name in self.columns)))

    def share(self, unit: int, from_file: int, to_file: int, rows: pa.Table) -> pa.Table:
        """Sort the rows of a unit that go to some of its files; they have their sort columns."""
        return self.order.between(self.placed(unit, rows), *self._limits(unit, from_file, to_file))

    def parts_of(self, unit: int, from_file: int, to_file: int) -> list[Key]:
        """Return the keys at which each part but the first of some of a unit's files begins."""
        low, high = self._limits(unit, from_file, to_file)
        parts = self.parts.get(unit, ())
        return [key for key in parts if (low is None or low < key) and (high is None or key < high)]

    def _limits(self, unit: int, from_file: int, to_file: int) -> tuple[Key | None, Key | None]:
        """Return the lowest key of some of a unit's files, and the key after them."""
        ends = [None, *self.cuts.get(unit, ()), None]
        return ends[from_file], ends[to_file]

    def cut(self, unit: int, rows: pa.Table) -> list[tuple[int, pa.Table]]:
        """Sort rows of a unit, and return the rows of each of its files, with the file's number in the unit."""
        return self.order.cut(self.order.sorted(self.placed(unit, rows)), self.cuts.get(unit, ()))


@dataclass(frozen=True)
class Division:
    """Into how many files and parts the rows of a unit are divided.

    :param rows: of its files, deleted rows included.
    """

    rows: int
    files: int
    parts: int

    @classmethod
    def of(cls, unit: Unit) -> Division:
        return cls(sum(file.rows for file in unit.files), unit.outputs, math.ceil(unit.bytes / _PART_BYTES))

    def is_sampled(self, curve: Curve) -> bool:
        """Check whether keys have to be known before rows are read."""
        return max(self.files, self.parts) > 1 or curve != "linear"

    def sampling_step(self, curve: Curve) -> int:
        """Return the distance between sampled rows."""
        for_files = self.files * (_SAMPLED if curve == "linear" else _SAMPLED_OF_CURVE)
        return max(1, self.rows // max(for_files, self.parts * _SAMPLED_OF_PART))


def placing_of(
    order: RunOrder, curve: Curve, sample: Mapping[int, Sequence[pa.Table]], divisions: Sequence[Division]
) -> Placing:
    """Find the keys at which files and parts begin.

    :param sample: rows of the sampled units, with the columns of the order.
    """
    tables = {unit: pa.concat_tables(rows) for unit, rows in sorted(sample.items())}
    placing = _along_curve(order, curve, tables, divisions) if curve != "linear" else Placing(order)
    placed = {unit: placing.placed(unit, rows) for unit, rows in tables.items()}
    if curve == "linear":
        placing = replace(
            placing, cuts={unit: order.cuts(rows, divisions[unit].files) for unit, rows in placed.items()}
        )
    parts = {unit: placing.order.cuts(rows, divisions[unit].parts) for unit, rows in placed.items()}
    return replace(placing, parts=parts)


def _along_curve(
    order: RunOrder, curve: SpaceFillingCurve, tables: Mapping[int, pa.Table], divisions: Sequence[Division]
) -> Placing:
    columns = tuple(order.sources)
    numbers = [
        pa.table(
            [pa.repeat(pa.scalar(unit, pa.int32()), rows.num_rows), *(_number(rows[name]) for name in columns)],
            names=["unit", *columns],
        )
        for unit, rows in tables.items()
    ]
    laid = CurveMap.of(curve, pa.concat_tables(numbers), [each.files for each in divisions])
    along = replace(order, fields=(RunField(_PLACE), *order.fields))
    cuts = {unit: [(1, place) for place in places] for unit, places in laid.cuts.items()}
    return Placing(along, cuts, curve=laid, columns=columns)


def _number(column: pa.ChunkedArray) -> pa.Array:
    """Convert values to integers, floats or bytes in the same order, for a curve."""
    values = storage(column.combine_chunks())
    kind = values.type
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return values.cast(pa.float64())
    if pa.types.is_date32(kind) or pa.types.is_boolean(kind):
        return values.cast(pa.int32()).cast(pa.int64())
    if pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        return values.cast(pa.int64())
    return values.cast(pa.binary())
