"""Read ORC files of Iceberg's writers in tasks, with the columns that a Parquet file of the same rows would have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from lakecdc.model.iceberg_columns import with_field_id
from lakecdc.reader.parquet_files import RowGroup, groups_without_bounds, rows_at_once
from lakecdc.reader.projection import Projection, UnreadError

_ID, _UNIT, _LENGTH = b"iceberg.id", b"iceberg.timestamp-unit", b"iceberg.length"
_LONG, _BINARY = b"iceberg.long-type", b"iceberg.binary-type"
# maximum average bytes of a stripe, because a stripe is decoded at once
_STRIPE_BYTES = 64 * 1024**2


class OrcFile:
    """An ORC data file.

    :raises UnreadError: Arrow cannot read it, or its stripes take too much memory.
    """

    def __init__(self, stream: Any, location: str) -> None:
        try:
            # some builds of Arrow lack ORC
            from pyarrow import orc

            self._file = orc.ORCFile(stream)
            stored = self._file.schema
        except (ImportError, pa.ArrowInvalid, NotImplementedError, OSError) as error:
            raise UnreadError(f"{location}: {error}") from error
        if self._file.content_length > _STRIPE_BYTES * max(1, self._file.nstripes):
            raise UnreadError(f"{location} has stripes of more than {_STRIPE_BYTES} bytes")
        self.rows, self.schema = self._file.nrows, pa.schema([_field(field) for field in stored])
        if not any(_ID in (field.metadata or {}) for field in stored):
            # timestamps of other writers depend on their time zone
            raise UnreadError(f"{location}: the ORC file has no field ids")

    def batches(self, begin: int, end: int, columns: Projection) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield stored rows of the stripes that a range overlaps, about 32 MiB each, with the position of the first.

        :raises UnreadError: Arrow cannot read a value.
        """
        if not columns.places:
            raise UnreadError("the file has none of the columns")
        position, schema = 0, pa.schema([self.schema.field(place) for place in columns.places])
        for number in range(self._file.nstripes):
            if position >= end:
                break
            try:
                stripe = self._file.read_stripe(number)
                first = position
                position += stripe.num_rows
                if position > begin:
                    table = pa.Table.from_batches([stripe.select(list(columns.places))]).cast(schema)
            except (pa.ArrowInvalid, NotImplementedError, OSError) as error:
                raise UnreadError(f"Arrow cannot read a column: {error}") from error
            if position > begin:
                for batch in table.to_batches(rows_at_once(table.num_rows, table.nbytes)):
                    yield first, batch
                    first += batch.num_rows

    def groups(self, columns: Projection) -> Iterator[RowGroup]:
        """Yield all rows, without bounds."""
        return groups_without_bounds(self.batches(0, self.rows, columns), columns)


def _field(field: pa.Field) -> pa.Field:
    """Return a field with the type and field id of Iceberg's attributes."""
    stored = field.metadata or {}
    typed = field.with_type(_type(field.type, stored)).remove_metadata()
    return with_field_id(typed, int(stored[_ID])) if _ID in stored else typed


def _type(kind: pa.DataType, stored: dict[bytes, bytes]) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([_field(member) for member in kind])
    if pa.types.is_list(kind):
        return pa.list_(_field(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(_field(kind.key_field), _field(kind.item_field))
    if pa.types.is_timestamp(kind) and stored.get(_UNIT) != b"NANOS":
        return pa.timestamp("us", kind.tz)
    if stored.get(_LONG) == b"TIME":
        return pa.time64("us")
    if stored.get(_BINARY) == b"UUID":
        return pa.uuid()
    return pa.binary(int(stored[_LENGTH])) if stored.get(_BINARY) == b"FIXED" else kind
