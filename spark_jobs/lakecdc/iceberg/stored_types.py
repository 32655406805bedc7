"""Columns of types that Spark lacks, with other types instead, so that Spark reads metadata and other columns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lakecdc.iceberg.jvm import jvm

if TYPE_CHECKING:
    from lakecdc.iceberg.table import IcebergTable

_Fields = Sequence[Mapping[str, Any]]
# Spark reads no table with a column of these types
_UNREAD = {"time": "long", "timestamp_ns": "long", "timestamptz_ns": "long"}
# each with a type that has the same bytes in metadata; Iceberg (1.12) fails to give Spark bounds of uuids as text
_STORED = {**_UNREAD, "uuid": "fixed[16]"}
_DEFAULTS = ("initial-default", "write-default")


def unread_columns(fields: _Fields) -> dict[str, str]:
    """Return the columns that hold a type that Spark does not read, by name, with the type.

    :param fields: columns as Iceberg's JSON has them.
    """
    return {f["name"]: kind for f in fields for kind in _plain_types(f["type"]) if kind in _UNREAD}


def with_stored_types(fields: _Fields) -> list[Mapping[str, Any]]:
    """Return columns or members with types that Spark reads, and which have the same bytes in metadata."""
    return [_with_stored_type(field) for field in fields]


def table_with(table: IcebergTable, fields: _Fields, snapshot_id: int | None = None) -> Any:
    """Return a Java table with the same files and other columns, which is never committed.

    :param snapshot_id: its current snapshot; default: the table's.
    """
    apache, operations = jvm(table.spark).org.apache.iceberg, table.java.operations()
    schema = apache.SchemaParser.fromJson(json.dumps({"type": "struct", "schema-id": 0, "fields": list(fields)}))
    current = operations.current()
    metadata = apache.TableMetadata.buildFrom(current).setCurrentSchema(schema, current.lastColumnId())
    # the table's own must fit the columns; those of its files stay
    metadata = metadata.setDefaultPartitionSpec(apache.PartitionSpec.unpartitioned())
    metadata = metadata.setDefaultSortOrder(apache.SortOrder.unsorted())
    if snapshot_id is not None:
        metadata = metadata.setRef("main", apache.SnapshotRef.branchBuilder(snapshot_id).build())
    return apache.BaseTable(operations.temp(metadata.build()), table.java.name())


def _with_stored_type(field: Mapping[str, Any]) -> Mapping[str, Any]:
    kind = _stored_type(field["type"])
    if kind == field["type"]:
        return field
    return {name: value for name, value in field.items() if name not in _DEFAULTS} | {"type": kind}


def _stored_type(kind: Any) -> Any:
    if isinstance(kind, str):
        return _STORED.get(kind, kind)
    members = {name: _stored_type(kind[name]) for name in ("element", "key", "value") if name in kind}
    if "fields" in kind:
        members["fields"] = with_stored_types(kind["fields"])
    return {**kind, **members}


def _plain_types(kind: Any) -> Iterator[str]:
    if isinstance(kind, str):
        yield kind
        return
    inside = [kind[name] for name in ("element", "key", "value") if name in kind]
    for member in [*inside, *(field["type"] for field in kind.get("fields", ()))]:
        yield from _plain_types(member)
