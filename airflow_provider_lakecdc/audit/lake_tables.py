"""The two tables as Iceberg has them: schema, partitions, and rows on their way in and out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_args, get_origin, get_type_hints

from airflow_provider_lakecdc.audit.rows import AuditRow, HealthRow
from lakecdc.metadata import names

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

Row = TypeVar("Row")
#: a commit a run fills the log of metadata files; engines that maintain the tables try as often as with others of ours
_PROPERTIES = {"commit.retry.num-retries": "20", "write.metadata.delete-after-commit.enabled": "true"}
_FIRST_PARTITION_ID = 1000


@dataclass(frozen=True)
class Column:
    """One column of a table, as a row's class describes it.

    :param type: what the row has; a mapping is stored as JSON text.
    """

    name: str
    type: type[Any]
    is_required: bool
    doc: str

    @classmethod
    def of(cls, name: str, hint: Any) -> Column:
        """Read an annotation."""
        annotated, doc = get_args(hint)
        optional = [each for each in get_args(annotated) if each is not type(None)]
        is_required = type(None) not in get_args(annotated)
        plain = annotated if is_required else optional[0]
        return cls(name, get_origin(plain) or plain, is_required, doc)


@dataclass(frozen=True)
class LakeTable(Generic[Row]):
    """A table of the lake as a whole.

    :param name: ``namespace.name``.
    :param row: the class of its rows.
    :param moment: column by whose day it is partitioned.
    """

    name: str
    row: type[Row]
    moment: str

    @cached_property
    def columns(self) -> list[Column]:
        """Columns in the order of the class's fields."""
        return [Column.of(name, hint) for name, hint in get_type_hints(self.row, include_extras=True).items()]

    def documents(self, rows: Iterable[Row]) -> list[dict[str, Any]]:
        """Rows as JSON."""
        return [{column.name: _document(getattr(row, column.name)) for column in self.columns} for row in rows]

    def stored(self, documents: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Rows that have been JSON as the table holds them."""
        moments = [column.name for column in self.columns if column.type is datetime]
        return [{**each, **{name: datetime.fromisoformat(each[name]) for name in moments}} for each in documents]

    def row_of(self, stored: Mapping[str, Any]) -> Row:
        """A row as the table holds it."""
        return self.row(**{column.name: _value(column, stored[column.name]) for column in self.columns})

    def open(self, catalog: Catalog) -> Table:
        """Load the table; make it, and its namespace, where it is missing."""
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        try:
            return catalog.load_table(self.name)
        except (NoSuchTableError, NoSuchNamespaceError):
            return self._make(catalog)

    def _make(self, catalog: Catalog) -> Table:
        """Make the table. Another writer may be faster, which catalogs tell in many ways."""
        try:
            catalog.create_namespace_if_not_exists(names.LAKE_NAMESPACE)
        except Exception:
            if not catalog.namespace_exists(names.LAKE_NAMESPACE):
                raise
        schema, partitions = self._schema(), self._partitions()
        try:
            return catalog.create_table(self.name, schema, partition_spec=partitions, properties=_PROPERTIES)
        except Exception:
            if not catalog.table_exists(self.name):
                raise
            return catalog.load_table(self.name)

    def _schema(self) -> Schema:
        from pyiceberg.schema import Schema
        from pyiceberg.types import (
            BooleanType,
            DoubleType,
            LongType,
            NestedField,
            PrimitiveType,
            StringType,
            TimestamptzType,
        )

        types: dict[type[Any], PrimitiveType] = {
            bool: BooleanType(),
            float: DoubleType(),
            int: LongType(),
            datetime: TimestamptzType(),
        }
        fields = [
            NestedField(
                field_id=number,
                name=each.name,
                field_type=types.get(each.type, StringType()),
                required=each.is_required,
                doc=each.doc,
            )
            for number, each in enumerate(self.columns, 1)
        ]
        return Schema(*fields)

    def _partitions(self) -> PartitionSpec:
        from pyiceberg.partitioning import PartitionField, PartitionSpec
        from pyiceberg.transforms import DayTransform

        source = self._schema().find_field(self.moment).field_id
        return PartitionSpec(PartitionField(source, _FIRST_PARTITION_ID, DayTransform(), f"{self.moment}_day"))


def _document(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return json.dumps(value, default=str) if isinstance(value, Mapping) else value


def _value(column: Column, stored: Any) -> Any:
    return json.loads(stored) if column.type is Mapping else stored


AUDIT = LakeTable(names.AUDIT, AuditRow, "finished_at")
HEALTH = LakeTable(names.HEALTH, HealthRow, "measured_at")
#: by name
LAKE_TABLES: dict[str, LakeTable[Any]] = {each.name: each for each in (AUDIT, HEALTH)}
