"""Turn rows of a Parquet file into the columns of a table, by field ids (table specification, "Column Projection").

A file may be older than the schema, or from another writer. Stored values are used if their meaning is certain;
otherwise :class:`UnreadError` is raised, and Iceberg's own reader has to read the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

from lakecdc.model.iceberg_columns import IcebergColumn, arrow_field, field_id, with_field_id

#: converts a stored array to the column's type
_Convert = Callable[[pa.Array], pa.Array]
_MICROS, _NANOS = pa.timestamp("us"), pa.timestamp("ns")
# one name for types that differ only in Arrow
_PLAIN = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}
# stored types whose values all fit another type (specification, "Schema Evolution"; Iceberg's reader of INT_8 …)
_PROMOTED = {
    (pa.int8(), pa.int32()),
    (pa.int16(), pa.int32()),
    (pa.int8(), pa.int64()),
    (pa.int16(), pa.int64()),
    (pa.int32(), pa.int64()),
    (pa.float32(), pa.float64()),
    (pa.date32(), _MICROS),
    (pa.date32(), _NANOS),
}


class UnreadError(Exception):
    """Tasks cannot read a file, or a column of it, with certainty."""


@dataclass(frozen=True)
class ReadColumn(IcebergColumn):
    """A column to read.

    :param default: ``initial-default`` of the schema's JSON: the value of rows in files without the column.
    """

    default: Any = None


def read_columns(fields: Iterable[Mapping[str, Any]]) -> tuple[ReadColumn, ...]:
    """Return the columns of a schema, or the members of a struct, from Iceberg's JSON."""
    return tuple(ReadColumn(f["id"], f["name"], f["type"], f["required"], f.get("initial-default")) for f in fields)


@dataclass(frozen=True)
class _Source:
    """Source of a column's values: the stored column at ``place``, or a constant without a place."""

    name: str
    place: int | None
    conversion: _Convert | pa.Scalar | None

    def of(self, stored: pa.RecordBatch | pa.StructArray) -> pa.Array:
        if self.place is None:
            return _repeated(self.conversion, len(stored))
        values = stored.column(self.place) if isinstance(stored, pa.RecordBatch) else stored.field(self.place)
        return _converted(values, self.conversion)


@dataclass(frozen=True)
class Projection:
    """Projection of one file's rows to columns of a table.

    :param schema: of the projected rows.
    :param leaves: indices of the Parquet columns to read.
    :param places: indices of the top-level columns to read.
    """

    schema: pa.Schema
    leaves: tuple[int, ...]
    places: tuple[int, ...]
    _sources: tuple[_Source, ...]

    def leaf(self, place: int) -> int | None:
        """Return the Parquet column of a column; None if the file lacks it. No column may be nested."""
        at = self._sources[place].place
        return None if at is None else self.leaves[at]

    def __call__(self, stored: pa.RecordBatch) -> pa.Table:
        """Project rows of the stored columns :attr:`leaves`.

        :raises UnreadError: a value does not fit its column's type.
        """
        columns = []
        for source in self._sources:
            try:
                columns.append(source.of(stored))
            except (pa.ArrowInvalid, NotImplementedError) as error:
                raise UnreadError(f"a value of the column {source.name} does not fit its type: {error}") from error
        return pa.Table.from_arrays(columns, schema=self.schema)


def projection(
    stored: pa.Schema,
    columns: Sequence[ReadColumn],
    name_mapping: Sequence[Mapping[str, Any]] | None = None,
    constants: Mapping[int, Any] | None = None,
) -> Projection:
    """Build the projection of a file to columns of a table.

    :param stored: the file's schema.
    :param name_mapping: ``schema.name-mapping.default``, for files without field ids.
    :param constants: values of identity partitions by field id, as JSON, for columns that the file lacks; ``{}`` for an
        unknown value.
    :raises UnreadError: the meaning of a stored column is not certain.
    :raises UnknownTypeError: tasks have no Arrow type for a column.
    """
    fields, firsts = _identified(list(stored), name_mapping), _first_leaves(stored)
    ids = {column.id for column in columns}
    read = [place for place, field in enumerate(fields) if field_id(field) in ids]
    known = constants or {}
    filled = [replace(column, default=known.get(column.id, column.default)) for column in columns]
    sources = _sources([fields[place] for place in read], filled, "")
    leaves = (leaf for place in read for leaf in range(firsts[place], firsts[place + 1]))
    return Projection(pa.schema([column.field() for column in columns]), tuple(leaves), tuple(read), tuple(sources))


def _sources(stored: Iterable[pa.Field], columns: Iterable[ReadColumn], parent: str) -> list[_Source]:
    """Find the sources of columns among stored fields.

    :param parent: prefix of names in messages.
    """
    fields, places = list(stored), dict[int | None, int]()
    for place, field in enumerate(fields):
        if places.setdefault(number := field_id(field), place) != place and number is not None:
            raise UnreadError(f"two stored columns have the field id {number} of {parent}{field.name}")
    sources = []
    for column in columns:
        name, at = f"{parent}{column.name}", places.get(column.id)
        conversion = _missing(column, name) if at is None else _conversion(fields[at], column, name)
        sources.append(_Source(name, at, conversion))
    return sources


def _identified(fields: list[pa.Field], name_mapping: Sequence[Mapping[str, Any]] | None) -> list[pa.Field]:
    """Return the fields with ids; the name mapping supplies them if no field has one."""
    if any(_has_ids(field) for field in fields):
        return fields
    if name_mapping is None:
        raise UnreadError("the file has no field ids, and the table no name mapping")
    return _named(fields, name_mapping)


def _has_ids(field: pa.Field) -> bool:
    return field_id(field) is not None or any(_has_ids(member) for member in _members(field.type))


def _named(fields: Iterable[pa.Field], mapping: Sequence[Mapping[str, Any]]) -> list[pa.Field]:
    by_name = {name: entry for entry in mapping for name in entry["names"]}
    return [_mapped(field, by_name.get(field.name, {})) for field in fields]


def _mapped(field: pa.Field, entry: Mapping[str, Any]) -> pa.Field:
    inside, kind = entry.get("fields", ()), field.type
    if pa.types.is_struct(kind):
        kind = pa.struct(_named(kind, inside))
    elif pa.types.is_map(kind):
        # the specification names the members of lists and maps; the file may use other names
        kind = pa.map_(*_named([kind.key_field.with_name("key"), kind.item_field.with_name("value")], inside))
    elif _is_list(kind):
        (element,) = _named([kind.value_field.with_name("element")], inside)
        kind = pa.large_list(element) if pa.types.is_large_list(kind) else pa.list_(element)
    field = field.with_type(kind)
    return with_field_id(field, entry["field-id"]) if "field-id" in entry else field


def _members(kind: pa.DataType) -> list[pa.Field]:
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    if pa.types.is_struct(kind):
        return list(kind)
    return [kind.value_field] if _is_list(kind) or pa.types.is_fixed_size_list(kind) else []


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _first_leaves(stored: pa.Schema) -> list[int]:
    """Return the index of each field's first Parquet column, and the number of columns."""
    firsts = [0]
    for field in stored:
        firsts.append(firsts[-1] + _leaves(field.type))
    return firsts


def _leaves(kind: pa.DataType) -> int:
    return sum(_leaves(member.type) for member in _members(kind)) or 1


def _conversion(stored: pa.Field, column: IcebergColumn, path: str) -> _Convert | None:
    """Return the conversion of stored values to the column's type; None if none is needed.

    :param path: the column's name with those of its parents, for messages.
    """
    expected = column.field().type
    if stored.type.equals(expected, check_metadata=True):
        return None
    if not column.is_nested:
        return _plain_conversion(stored.type, expected, path)
    kind = column.type
    if kind["type"] == "struct" and pa.types.is_struct(stored.type):
        return _struct_conversion(stored.type, kind, path)
    if kind["type"] == "list" and _is_list(stored.type):
        return _list_conversion(stored.type, kind, path)
    if kind["type"] == "map" and pa.types.is_map(stored.type):
        return _map_conversion(stored.type, kind, path)
    raise UnreadError(f"the column {path} is {kind['type']}, and the file stores {stored.type}")


def _plain_conversion(stored: pa.DataType, expected: pa.DataType, path: str) -> _Convert | None:
    values = stored.value_type if pa.types.is_dictionary(stored) else stored
    values = _PLAIN.get(values, values)
    if not (values == expected or (values, expected) in _PROMOTED or _holds(expected, values)):
        raise UnreadError(f"the column {path} is {expected}, and the file stores {stored}")
    return None if stored == expected else lambda array: array.cast(expected)


def _holds(expected: pa.DataType, stored: pa.DataType) -> bool:
    """Check whether a decimal, timestamp or uuid type holds every value of a stored type."""
    if pa.types.is_decimal128(expected):
        return bool(
            pa.types.is_decimal(stored) and stored.scale == expected.scale and stored.precision <= expected.precision
        )
    if isinstance(expected, pa.BaseExtensionType):
        return bool(stored == expected.storage_type)
    # The column's type decides whether it is in UTC: INT96 does not say, and Iceberg's reader ignores other types. That
    # reader is inconsistent for milliseconds (1.12 reads dictionary values as microseconds).
    return bool(pa.types.is_timestamp(expected) and pa.types.is_timestamp(stored) and stored.unit == expected.unit)


def _struct_conversion(stored: pa.StructType, kind: Mapping[str, Any], path: str) -> _Convert:
    sources = _sources(stored, read_columns(kind["fields"]), f"{path}.")
    if all(source.place is None for source in sources):
        # Iceberg's reader makes either all such structs null, or none
        raise UnreadError(f"the file has none of the members of {path}")
    fields = list(arrow_field(0, "", kind, False).type)

    def convert(array: pa.StructArray) -> pa.StructArray:
        nulls = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays([source.of(array) for source in sources], fields=fields, mask=nulls)

    return convert


def _list_conversion(stored: pa.DataType, kind: Mapping[str, Any], path: str) -> _Convert:
    element = ReadColumn(kind["element-id"], "element", kind["element"], kind["element-required"])
    within = _inside([stored.value_field], [element], path)[0]
    expected = arrow_field(0, "", kind, False).type

    def convert(array: pa.Array) -> pa.Array:
        if pa.types.is_large_list(array.type):
            array = array.cast(pa.list_(array.type.value_field))
        values = [_converted(array.values, within)]
        return _rebuilt(array, expected, values)

    return convert


def _map_conversion(stored: pa.MapType, kind: Mapping[str, Any], path: str) -> _Convert:
    key = ReadColumn(kind["key-id"], "key", kind["key"], True)
    value = ReadColumn(kind["value-id"], "value", kind["value"], kind["value-required"])
    of_key, of_value = _inside([stored.key_field, stored.item_field], [key, value], path)
    expected = arrow_field(0, "", kind, False).type

    def convert(array: pa.MapArray) -> pa.Array:
        children = [_converted(array.keys, of_key), _converted(array.items, of_value)]
        pairs = pa.StructArray.from_arrays(children, fields=[expected.key_field, expected.item_field])
        return _rebuilt(array, expected, [pairs])

    return convert


def _inside(stored: Sequence[pa.Field], members: Sequence[ReadColumn], path: str) -> list[_Convert | None]:
    """Return the conversions of the members of a list or map, in order."""
    for field, column in zip(stored, members, strict=True):
        if field_id(field) != column.id:
            raise UnreadError(f"the {column.name} of {path} has the field id {column.id}, the file's {field_id(field)}")
    return [_conversion(f, column, f"{path}.{column.name}") for f, column in zip(stored, members, strict=True)]


def _converted(array: pa.Array, convert: _Convert | None) -> pa.Array:
    return array if convert is None else convert(array)


def _rebuilt(array: pa.Array, expected: pa.DataType, children: list[pa.Array]) -> pa.Array:
    """Rebuild a list or map with the same offsets and other values."""
    return pa.Array.from_buffers(
        expected, len(array), array.buffers()[:2], array.null_count, array.offset, children=children
    )


def _repeated(value: pa.Scalar, rows: int) -> pa.Array:
    return pa.repeat(value, rows) if value.is_valid else pa.nulls(rows, value.type)


def _missing(column: ReadColumn, name: str) -> pa.Scalar:
    """Return the value of a column that a file lacks (specification, "Single-value Serialization")."""
    expected, value = column.field().type, column.default
    if value == {} and not column.is_nested:
        raise UnreadError(f"the file lacks the column {name}, and the table is partitioned by it")
    if value is None:
        if column.required:
            raise UnreadError(f"the column {name} is required, and the file lacks it")
        return pa.scalar(None, expected)
    if column.is_nested:
        raise UnreadError(f"the column {name} has a nested default value, and the file lacks it")
    if pa.types.is_decimal(expected):
        value = Decimal(value)
    elif pa.types.is_date(expected):
        value = date.fromisoformat(value)
    elif pa.types.is_time(expected):
        value = time.fromisoformat(value)
    elif expected in (_NANOS, pa.timestamp("ns", "UTC")):
        value = int(np.datetime64(value.removesuffix("+00:00"), "ns").view("int64"))
    elif pa.types.is_timestamp(expected):
        value = datetime.fromisoformat(value)
    elif isinstance(expected, pa.BaseExtensionType):
        value = UUID(value).bytes
    elif pa.types.is_binary(expected) or pa.types.is_fixed_size_binary(expected):
        value = bytes.fromhex(value)
    return pa.scalar(value, expected)
