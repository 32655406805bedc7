"""Arrow's types of Iceberg's, nested ones too, with the field ids that readers look for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from lakecdc.model.columns import arrow_type

if TYPE_CHECKING:
    import pyarrow as pa

_FIXED = re.compile(r"fixed\[(\d+)\]")
# Spark's names of types that Iceberg calls otherwise
_SPARK_NAMES = {"long": "bigint", "timestamp": "timestamp_ntz", "timestamptz": "timestamp"}
_FIELD_ID = "PARQUET:field_id"


class UnknownTypeError(Exception):
    """Tasks cannot write values of an Iceberg type, whose name this is."""


def arrow_field(field_id: int, name: str, kind: Any, required: bool) -> pa.Field:
    """Return Arrow's field of a column, or of a member of one.

    :param kind: the type, as Iceberg's JSON of a schema has it.
    :raises UnknownTypeError: the type, or one inside it, is none of those that tasks write.
    """
    import pyarrow as pa

    return pa.field(name, _type(kind), not required, {_FIELD_ID: str(field_id)})


def _type(kind: Any) -> pa.DataType:
    import pyarrow as pa

    if isinstance(kind, str):
        return _primitive(kind)
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


def _primitive(kind: str) -> pa.DataType:
    import pyarrow as pa

    if fixed := _FIXED.fullmatch(kind):
        return pa.binary(int(fixed[1]))
    known = arrow_type(_SPARK_NAMES.get(kind, kind))
    if known is None:
        raise UnknownTypeError(kind)
    return known
