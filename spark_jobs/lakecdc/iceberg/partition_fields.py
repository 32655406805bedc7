"""The fields of a table's partition specs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecdc.iceberg.jvm import listed, mapping

if TYPE_CHECKING:
    from lakecdc.iceberg.table import IcebergTable

_BUCKET = "bucket["


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
