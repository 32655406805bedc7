"""Place rows in the files of a rewrite: the order of rows, and the keys at which each file begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecdc.maintain.curves import CurveMap
from lakecdc.maintain.run_order import RunField, RunOrder
from lakecdc.model.iceberg_columns import storage

if TYPE_CHECKING:
    from lakecdc.contract.rewriting import Curve
    from lakecdc.maintain.run_order import Key

# column with a row's place on a curve
_PLACE = "_lakecdc_place"
# sampled rows per new file: to cut between files, and for the shape of a curve
_SAMPLED, _SAMPLED_OF_CURVE = 200, 1000


@dataclass(frozen=True)
class Placing:
    """The order of rows, and the keys at which each unit's files begin.

    :param order: of the rows, along the curve first if there is one.
    :param cuts: keys at which each file but the first begins, by unit.
    :param curve: the curve of the units.
    :param columns: the columns of the curve.
    """

    order: RunOrder
    cuts: Mapping[int, Sequence[Key]] = field(default_factory=dict, repr=False)
    curve: CurveMap | None = field(default=None, repr=False)
    columns: tuple[str, ...] = ()

    def placed(self, unit: int, rows: pa.Table) -> pa.Table:
        """Return rows of a unit with their sort columns: for a curve, with their places."""
        if self.curve is None:
            return rows
        units = pa.repeat(pa.scalar(unit, pa.int32()), rows.num_rows)
        return rows.append_column(_PLACE, self.curve.places(units, *(_number(rows[name]) for name in self.columns)))

    def share(self, unit: int, from_file: int, to_file: int, rows: pa.Table) -> pa.Table:
        """Return the rows of a unit that go to some of its files, with their sort columns."""
        low, high = ([None, *self.cuts.get(unit, ()), None][place] for place in (from_file, to_file))
        return self.order.between(self.placed(unit, rows), low, high)

    def cut(self, unit: int, rows: pa.Table) -> list[tuple[int, pa.Table]]:
        """Sort rows of a unit, and return the rows of each of its files, with the file's number in the unit."""
        return self.order.cut(self.order.sorted(self.placed(unit, rows)), self.cuts.get(unit, ()))


def sampling_step(curve: Curve, rows: int, outputs: int) -> int:
    """Return the distance between sampled rows of a unit."""
    return max(1, rows // (outputs * (_SAMPLED if curve == "linear" else _SAMPLED_OF_CURVE)))


def placing_of(
    order: RunOrder, curve: Curve, sample: Mapping[int, Sequence[pa.Table]], outputs: Sequence[int]
) -> Placing:
    """Find the keys at which files begin.

    :param sample: rows of the units that become several files or are sorted by a curve, with the columns of the order.
    :param outputs: number of files of each unit.
    """
    if curve == "linear":
        tables = {unit: pa.concat_tables(parts) for unit, parts in sample.items()}
        return Placing(order, {unit: order.cuts(rows, outputs[unit]) for unit, rows in tables.items()})
    columns = tuple(order.sources)
    numbers = [
        pa.table(
            [pa.repeat(pa.scalar(unit, pa.int32()), rows.num_rows), *(_number(rows[name]) for name in columns)],
            names=["unit", *columns],
        )
        for unit, parts in sorted(sample.items())
        for rows in parts
    ]
    laid = CurveMap.of(curve, pa.concat_tables(numbers), outputs)
    along = replace(order, fields=(RunField(_PLACE), *order.fields))
    return Placing(along, {unit: [(1, place) for place in places] for unit, places in laid.cuts.items()}, laid, columns)


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
