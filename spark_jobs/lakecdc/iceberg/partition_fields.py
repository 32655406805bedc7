"""The fields of a table's partition specs, and the change of a bucket's number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecdc.contract.errors import ConflictError
from lakecdc.iceberg.commit import told_as_conflict
from lakecdc.iceberg.definition import current_spec_id
from lakecdc.iceberg.jvm import jvm, listed, mapping
from lakecdc.iceberg.retry import retried

if TYPE_CHECKING:
    from lakecdc.iceberg.table import IcebergTable

_BUCKET = "bucket["
# transforms that leave some values as they are
_KEEPING = ("identity", "truncate", "day")


@dataclass(frozen=True)
class PartitionField:
    """One field of a partition spec.

    :param name: what metadata tables call it.
    :param source_id: field id of the column that it derives from.
    :param transform: Iceberg's text of the transform, such as ``day`` or ``bucket[16]``.
    """

    name: str
    source_id: int
    transform: str

    @property
    def buckets(self) -> int | None:
        """Number of buckets; None if it is something else."""
        return int(self.transform[len(_BUCKET) : -1]) if self.transform.startswith(_BUCKET) else None


Fields = tuple[PartitionField, ...]


def partition_fields(table: IcebergTable) -> dict[int, Fields]:
    """The fields of each spec that the table has or had, by spec id; those that always are null are left out."""
    specs = sorted((int(number), listed(spec.fields())) for number, spec in mapping(table.java.specs()).items())
    # a metadata table has a column for each field id, called as in the newest spec that has it
    names = {int(field.fieldId()): str(field.name()) for _, fields in specs for field in fields}
    return {
        number: tuple(
            PartitionField(names[int(field.fieldId())], int(field.sourceId()), str(field.transform().toString()))
            for field in fields
            if str(field.transform().toString()) != "void"
        )
        for number, fields in specs
    }


def fields_with_values(table: IcebergTable) -> dict[int, dict[int, int]]:
    """The partition fields whose partitions are called by values of a column, by spec id.

    :return: of each spec the ids of such fields, and of the columns that they derive from.
    """
    return {
        int(number): {
            int(field.fieldId()): int(field.sourceId())
            for field in listed(spec.fields())
            if str(field.transform().toString()).partition("[")[0] in _KEEPING
        }
        for number, spec in mapping(table.java.specs()).items()
    }


def change_buckets(table: IcebergTable, spec_id: int, bucket: PartitionField, count: int) -> None:
    """Give a bucket field of the current spec another number of buckets, in one metadata commit; no file changes.

    :param spec_id: the current spec, as the caller knows it.
    :raises ConflictError: the table has another one by now.
    """
    expressions = jvm(table.spark).org.apache.iceberg.expressions.Expressions

    def commit() -> None:
        if current_spec_id(table) != spec_id:
            raise ConflictError(
                "Somebody has changed the table's partition spec meanwhile.", table=table.name, hint="Run again."
            )
        column = str(table.java.schema().findColumnName(bucket.source_id))
        update = table.java.updateSpec().removeField(expressions.bucket(column, bucket.buckets))
        update.addField(expressions.bucket(column, count)).commit()

    with told_as_conflict(table, "The number of buckets was not changed", "No file was changed; run again."):
        retried(table, commit)
    table.refresh()
