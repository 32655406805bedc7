"""Schema and partitions of the two tables, and conversion of their rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_args, get_origin, get_type_hints

from airflow_provider_lakecdc.audit.rows import AuditRow, HealthRow
from airflow_provider_lakecdc.lake.tables import load_table
from lakecdc.metadata import names

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

Row = TypeVar("Row")
#: every run commits, which piles up metadata files; retry as often as on other tables
_PROPERTIES = {"commit.retry.num-retries": "20", "write.metadata.delete-after-commit.enabled": "true"}
_FIRST_PARTITION_ID = 1000


@dataclass(frozen=True)
class Column:
    """A column, described by a field of a row's class; mappings are stored as JSON text."""

    name: str
    type: type[Any]
    is_required: bool
    doc: str

    @classmethod
    def of(cls, name: str, hint: Any) -> Column:
        """Parse a field's annotation."""
        annotated, doc = get_args(hint)
        optional = [each for each in get_args(annotated) if each is not type(None)]
        is_required = type(None) not in get_args(annotated)
        plain = annotated if is_required else optional[0]
        return cls(name, get_origin(plain) or plain, is_required, doc)


@dataclass(frozen=True)
class LakeTable(Generic[Row]):
    """A table of the whole lake.

    :param name: ``namespace.name``.
    :param moment: timestamp column that partitions the table by day.
    """

    name: str
    row: type[Row]
    moment: str

    @cached_property
    def columns(self) -> list[Column]:
        """Return the columns in field order."""
        return [Column.of(name, hint) for name, hint in get_type_hints(self.row, include_extras=True).items()]

    def documents(self, rows: Iterable[Row]) -> list[dict[str, Any]]:
        """Convert rows to JSON values."""
        return [{column.name: _document(getattr(row, column.name)) for column in self.columns} for row in rows]

    def stored(self, documents: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Convert JSON values to stored values."""
        moments = [column.name for column in self.columns if column.type is datetime]
        return [{**each, **{name: datetime.fromisoformat(each[name]) for name in moments}} for each in documents]

    def row_of(self, stored: Mapping[str, Any]) -> Row:
        """Convert a stored row."""
        return self.row(**{column.name: _value(column, stored[column.name]) for column in self.columns})

    def open(self, catalog: Catalog) -> Table:
        """Load the table; create it and its namespace if they do not exist."""
        table = load_table(catalog, self.name)
        return self._create(catalog) if table is None else table

    def _create(self, catalog: Catalog) -> Table:
        """Create the table, or load it if another writer was faster (each catalog reports that differently)."""
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
        from pyiceberg import types
        from pyiceberg.schema import Schema

        kinds = {bool: types.BooleanType, float: types.DoubleType, int: types.LongType, datetime: types.TimestamptzType}
        fields = [
            types.NestedField(number, each.name, kinds.get(each.type, types.StringType)(), each.is_required, each.doc)
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
