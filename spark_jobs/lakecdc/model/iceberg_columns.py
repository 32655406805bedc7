"""Columns of Iceberg's files in Arrow: every field has its field id, at all levels."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa

from lakecdc.model.columns import arrow_type

_FIELD_ID = b"PARQUET:field_id"
_FIXED = re.compile(r"fixed\[(\d+)\]")
# Spark's names of types, if other than Iceberg's
_SPARK_NAMES = {"long": "bigint", "timestamp": "timestamp_ntz", "timestamptz": "timestamp"}


class UnknownTypeError(Exception):
    """Tasks have no Arrow type for the Iceberg type that the message names."""


@dataclass(frozen=True)
class IcebergColumn:
    """A column of a table.

    :param id: Iceberg field id.
    :param type: as in Iceberg's JSON of a schema.
    """

    id: int
    name: str
    type: Any
    required: bool

    @property
    def is_nested(self) -> bool:
        return not isinstance(self.type, str)

    @property
    def sql_type(self) -> str | None:
        """Return Spark's name of the type, or Iceberg's if Spark has no such type; None for a nested type."""
        if self.is_nested:
            return None
        return "binary" if _FIXED.fullmatch(self.type) else _SPARK_NAMES.get(self.type, self.type)

    def field(self) -> pa.Field:
        """Return Arrow's field, see :func:`arrow_field`."""
        return arrow_field(self.id, self.name, self.type, self.required)


def arrow_field(field_id: int, name: str, kind: Any, required: bool) -> pa.Field:
    """Return Arrow's field of a column or member, with its field id.

    :param kind: the type, as in Iceberg's JSON of a schema.
    :raises UnknownTypeError: tasks have no Arrow type for the type, or for one inside it.
    """
    return with_field_id(pa.field(name, _type(kind), not required), field_id)


def field_id(field: pa.Field) -> int | None:
    """Return the field id of an Arrow field, if it has one."""
    text = (field.metadata or {}).get(_FIELD_ID)
    return None if text is None else int(text)


def with_field_id(field: pa.Field, number: int) -> pa.Field:
    """Return an Arrow field with a field id."""
    return field.with_metadata({_FIELD_ID: str(number).encode()})


def storage(values: Any) -> Any:
    """Return the stored values of an array of an extension type, because Arrow has no functions for these types."""
    kind = storage_type(values.type)
    return values if kind == values.type else values.cast(kind)


def storage_type(kind: pa.DataType) -> pa.DataType:
    """Return the Arrow type of the stored values of a type."""
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def holds_uuid(kind: pa.DataType) -> bool:
    """Check whether an Arrow type is or contains uuid, which Spark reads as text."""
    # the only extension type of columns
    if isinstance(kind, pa.BaseExtensionType):
        return True
    return any(holds_uuid(kind.field(place).type) for place in range(kind.num_fields))


@cache
def _beyond_spark() -> dict[str, pa.DataType]:
    """Return the Arrow types of Iceberg types that Spark reads as text or not at all."""
    from pyarrow.parquet import ParquetFile

    known = {
        "time": pa.time64("us"),
        "timestamp_ns": pa.timestamp("ns"),
        "timestamptz_ns": pa.timestamp("ns", "UTC"),
    }
    # older versions of Arrow write the bytes without their type
    if "arrow_extensions_enabled" in inspect.signature(ParquetFile.__init__).parameters:
        known["uuid"] = pa.uuid()
    return known


def _type(kind: Any) -> pa.DataType:
    if isinstance(kind, str):
        if fixed := _FIXED.fullmatch(kind):
            return pa.binary(int(fixed[1]))
        known = arrow_type(_SPARK_NAMES.get(kind, kind)) or _beyond_spark().get(kind)
        if known is None:
            raise UnknownTypeError(kind)
        return known
    if kind["type"] == "list":
        return pa.list_(arrow_field(kind["element-id"], "element", kind["element"], kind["element-required"]))
    if kind["type"] == "map":
        key = arrow_field(kind["key-id"], "key", kind["key"], True)
        return pa.map_(key, arrow_field(kind["value-id"], "value", kind["value"], kind["value-required"]))
    members = [arrow_field(f["id"], f["name"], f["type"], f["required"]) for f in kind["fields"]]
    if not members:
        # Parquet has no groups without columns
        raise UnknownTypeError("struct<>")
    return pa.struct(members)
