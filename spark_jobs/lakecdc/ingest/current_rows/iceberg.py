"""Another table of the catalog, or an older snapshot of one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakecdc.contract.errors import InputError
from lakecdc.contract.sources.iceberg import IcebergSource
from lakecdc.contract.spec import JobSpec
from lakecdc.contract.target import Target
from lakecdc.iceberg.refs import named_snapshot
from lakecdc.iceberg.table import IcebergTable
from lakecdc.ingest.change import Column
from lakecdc.ingest.current_rows import SourceRows
from lakecdc.ingest.current_rows.key_ranges import KeyCondition
from lakecdc.ingest.engine.table_fields import chosen_type
from lakecdc.ingest.sources.database import LoadMark, check_named_columns, full_load_frame
from lakecdc.ingest.tables import source_types
from lakecdc.key_search.bounded import bounded_reads
from lakecdc.sql import quoted_column


@dataclass(frozen=True)
class Tables:
    """The catalog's tables."""

    spark: SparkSession
    spec: JobSpec

    def open(self, target: Target, table: IcebergTable) -> Table:
        assert isinstance(self.spec.source, IcebergSource)
        table_read = IcebergTable(self.spark, self.spec.catalog.name, target.source_table or target.table)
        named = self.spec.source.snapshot
        head = named_snapshot(table_read, named) if named else table_read.head()
        types = source_types(table_read, target)
        key = target.key or tuple(table_read.identifier_columns)
        check_named_columns(target, table_read.name, key, set(types))
        if not key:
            raise InputError(
                f"{table_read.name} has no identifier fields, and the target names no key.",
                hint='Add "key" to its target.',
            )
        included = [name for name in types if name not in target.exclude_columns]
        kinds = {name: chosen_type(target, name) if name in target.columns else types[name] for name in included}
        columns = tuple(Column(name, kind, name in key) for name, kind in kinds.items())
        return Table(
            table_read, head.id if head else None, key, columns, {n: k for n, k in kinds.items() if k == types[n]}
        )

    def close(self) -> None:
        """Do nothing: there is no connection."""


@dataclass(frozen=True)
class Table:
    """A source table; ``snapshot`` is None for a table without snapshots."""

    table: IcebergTable
    snapshot: int | None
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    ordered: dict[str, str]

    @contextmanager
    def rows(self, condition: KeyCondition | None) -> Iterator[SourceRows]:
        row = F.struct(*[F.col(quoted_column(c.name)).cast(c.type).alias(c.name) for c in self.columns])
        with bounded_reads(self.table) as table:
            rows = table.read(self.snapshot, where=condition.in_spark() if condition else "true")
            yield SourceRows(full_load_frame(rows, self.key, row, LoadMark("", datetime.now(UTC))))

    def now(self) -> None:
        """Return None: a snapshot does not change."""


open_source = Tables
