"""Another table of the catalog, or a table as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakecdc.contract.errors import InputError
from lakecdc.contract.sources.iceberg import IcebergSource
from lakecdc.iceberg import definition
from lakecdc.iceberg.table import IcebergTable
from lakecdc.ingest.change import Column
from lakecdc.ingest.formats.table_fields import chosen_type
from lakecdc.ingest.sources.database import LoadMark, check_named_columns, full_load_frame
from lakecdc.ingest.tables import own_columns
from lakecdc.maintain.named_snapshots import named_snapshot
from lakecdc.reconcile.sources import SourceRows
from lakecdc.sql import quoted_column

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakecdc.contract.spec import JobSpec
    from lakecdc.contract.target import Target
    from lakecdc.reconcile.ranges import Wanted


@dataclass(frozen=True)
class Tables:
    """The catalog's tables."""

    spark: SparkSession
    spec: JobSpec

    def open(self, target: Target, table: IcebergTable) -> Table:
        """See :class:`lakecdc.reconcile.sources.Source`."""
        assert isinstance(self.spec.source, IcebergSource)
        found = IcebergTable(self.spark, self.spec.catalog.name, target.source_table or target.table)
        named = self.spec.source.snapshot
        head = named_snapshot(found, named) if named else found.head()
        own = {name for name, _, _ in own_columns(target)}
        types = {name: kind for name, kind in definition.spark_types(found).items() if name not in own}
        key = target.key or tuple(found.identifier_columns)
        check_named_columns(target, found.name, key, set(types))
        if not key:
            raise InputError(
                f"{found.name} has no identifier fields, and the target names no key.",
                table=target.table,
                hint='Add "key" to its target.',
            )
        wanted = [name for name in types if name not in target.exclude_columns]
        kinds = {name: chosen_type(target, name) if name in target.columns else types[name] for name in wanted}
        columns = tuple(Column(name, kind, name in key) for name, kind in kinds.items())
        return Table(found, head.id if head else None, key, columns, {n: k for n, k in kinds.items() if k == types[n]})

    def close(self) -> None:
        """There is no connection."""


@dataclass(frozen=True)
class Table:
    """One of them; see :class:`lakecdc.reconcile.sources.SourceTable`.

    :param snapshot: the snapshot that is read; None if the table has none.
    """

    table: IcebergTable
    snapshot: int | None
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    ordered: dict[str, str]

    @contextmanager
    def rows(self, wanted: Wanted | None) -> Iterator[SourceRows]:
        """See :class:`lakecdc.reconcile.sources.SourceTable`."""
        found = self.table.read(self.snapshot, where=wanted.in_spark() if wanted else "true")
        values = {c.name: F.col(quoted_column(c.name)).cast(c.type) for c in self.columns}
        yield SourceRows(full_load_frame(found, self.key, self.columns, values, LoadMark("", datetime.now(UTC))))

    def now(self) -> None:
        """A snapshot stays as it is."""


def open_source(spark: SparkSession, spec: JobSpec) -> Tables:
    """The source of a spec whose source is of type ``iceberg``."""
    return Tables(spark, spec)
