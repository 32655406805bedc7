"""Fields of a table's partition specs, and changes of the number of buckets."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from lakecdc.contract.errors import ConflictError
from lakecdc.iceberg.commit_outcome import conflict_errors, retry_commit
from lakecdc.iceberg.definition import current_spec_id, spec_fields
from lakecdc.iceberg.jvm import java_class, jvm, listed, mapping
from lakecdc.iceberg.table import IcebergTable

_BUCKET = "bucket["
# types whose values are the same in JSON
_PLAIN = ("BOOLEAN", "INTEGER", "LONG", "STRING")
# transforms that keep some values unchanged
_KEEPING = ("identity", "truncate", "day")


@dataclass(frozen=True)
class PartitionField:
    """One field of a partition spec.

    :param name: its name in metadata tables.
    :param transform: Iceberg's text of the transform, such as ``day`` or ``bucket[16]``.
    """

    name: str
    source_id: int
    transform: str

    @property
    def buckets(self) -> int | None:
        """Return the number of buckets; None for another transform."""
        return int(self.transform[len(_BUCKET) : -1]) if self.transform.startswith(_BUCKET) else None


Fields = tuple[PartitionField, ...]


def partition_fields(table: IcebergTable) -> dict[int, Fields]:
    """Return the fields of each current or former spec by id, without those that are always null."""
    specs = sorted((int(number), spec) for number, spec in mapping(table.java.specs()).items())
    # metadata tables have a column per field id, named as in the newest spec that has it
    names = {int(field.fieldId()): str(field.name()) for _, spec in specs for field in listed(spec.fields())}
    return {
        number: tuple(
            PartitionField(names[int(field.fieldId())], int(field.sourceId()), transform)
            for field, transform in spec_fields(spec)
        )
        for number, spec in specs
    }


def identity_values(table: IcebergTable, task: Any) -> str | None:
    """Return the values of a scan task's identity partitions as JSON, by field id of their columns; None without any.

    Values that Java does not pass unchanged, such as floats, are ``{}``. Files of other writers may lack these columns.
    """
    spec, values = task.spec(), dict[int, Any]()
    for place, (field, kind) in enumerate(
        zip(listed(spec.fields()), listed(spec.partitionType().fields()), strict=True)
    ):
        if field.transform().isIdentity():
            value = task.file().partition().get(place, java_class(table.spark, "java.lang.Object"))
            is_plain = isinstance(value, bool | int | str | None) and str(kind.type().typeId().toString()) in _PLAIN
            values[int(field.sourceId())] = value if is_plain else {}
    return json.dumps(values) if values else None


def identity_columns(table: IcebergTable) -> frozenset[int]:
    """Return the field ids of columns by whose values a spec partitions rows; files of other writers may lack them."""
    of_specs = partition_fields(table).values()
    return frozenset(field.source_id for fields in of_specs for field in fields if field.transform == "identity")


def fields_with_values(table: IcebergTable) -> dict[int, dict[int, int]]:
    """Return the fields with partitions named after values: source column id by field id, by spec id."""
    return {
        int(number): {
            int(field.fieldId()): int(field.sourceId())
            for field in listed(spec.fields())
            if str(field.transform().toString()).partition("[")[0] in _KEEPING
        }
        for number, spec in mapping(table.java.specs()).items()
    }


def change_buckets(table: IcebergTable, spec_id: int, bucket: PartitionField, count: int) -> None:
    """Change the number of buckets of a field of the current spec in one metadata commit; no file changes.

    :param spec_id: the current spec, as the caller knows it.
    :raises ConflictError: the table's spec has changed.
    """
    expressions = jvm(table.spark).org.apache.iceberg.expressions.Expressions

    def commit() -> None:
        if current_spec_id(table) != spec_id:
            raise ConflictError(
                "Another writer changed the partition spec meanwhile.", table=table.name, hint="Run again."
            )
        column = str(table.java.schema().findColumnName(bucket.source_id))
        update = table.java.updateSpec().removeField(expressions.bucket(column, bucket.buckets))
        update.addField(expressions.bucket(column, count)).commit()

    with conflict_errors(table, "The number of buckets was not changed", "No file was changed; run again."):
        retry_commit(table, commit)
    table.refresh()
