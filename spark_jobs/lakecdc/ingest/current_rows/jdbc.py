"""Tables of a database through Spark's JDBC reader; the recheck recognizes changes made during the read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakecdc.contract.errors import InputError
from lakecdc.contract.sources.jdbc import JdbcSource
from lakecdc.contract.spec import JobSpec
from lakecdc.contract.target import Target
from lakecdc.iceberg.table import IcebergTable
from lakecdc.ingest.batch import Batch, SourceFacts
from lakecdc.ingest.change import Column, Rows
from lakecdc.ingest.current_rows import Loading, SourceRows
from lakecdc.ingest.current_rows.key_ranges import KeyCondition
from lakecdc.ingest.engine.decoded import Decoded, Known
from lakecdc.ingest.engine.records import decode_cells, stored_columns
from lakecdc.ingest.sources.database import LoadMark, check_named_columns, full_load_frame
from lakecdc.ingest.sources.jdbc.source import check_cursor, check_kind, row_reading
from lakecdc.ingest.sources.jdbc.tables import Database, SourceTable, Stretch
from lakecdc.ingest.sources.message_batches import known_of
from lakecdc.local_relation import local_relation
from lakecdc.metadata.positions import Position
from lakecdc.model.order import moment
from lakecdc.sql import quoted_column

_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_TIMES = ("date", "timestamp", "timestamp_ntz")


class Jdbc:
    """The database of a JDBC source."""

    def __init__(self, spark: SparkSession, spec: JobSpec) -> None:
        assert isinstance(spec.source, JdbcSource)
        self.database = Database(spark, spec.source)

    def open(self, target: Target, table: IcebergTable) -> Table:
        # rows are compared and applied one by one, without a fold
        known = replace(known_of(table, target), folds=False)
        source_table = SourceTable(self.database, target, known.types)
        key, label = source_table.key(), ".".join(source_table.label)
        if not key:
            raise InputError(
                f"{label} has no primary key, and the target names no key.",
                hint='Add "key" to its target.',
            )
        check_named_columns(target, label, key, {c.name for c in source_table.columns})
        included = [c for c in source_table.columns if c.name not in target.exclude_columns]
        return Table(source_table, known, key, stored_columns(included, target, known.types))

    def close(self) -> None:
        """Do nothing: Spark closes its connections itself."""


@dataclass(frozen=True)
class Table:
    """A source table; ``known`` is about the target's table."""

    table: SourceTable
    known: Known
    key: tuple[str, ...]
    columns: tuple[Column, ...]

    @property
    def ordered(self) -> dict[str, str]:
        own = {c.name: c.type for c in self.table.columns}
        # SQLite stores times as texts of any form
        times = () if self.table.database.source.dialect == "sqlite" else _TIMES
        return {
            c.name: c.type
            for c in self.columns
            if {own[c.name], c.type} <= {*_INTEGERS} or (own[c.name] == c.type and c.type in times)
        }

    @contextmanager
    def rows(self, condition: KeyCondition | None) -> Iterator[SourceRows]:
        decoded = self._decoded(condition)
        try:
            yield SourceRows(self._changes(decoded), decoded.rejections)
        finally:
            self.table.database.spark.catalog.clearCache()

    def _decoded(self, condition: KeyCondition | None) -> Decoded:
        table, everything = self.table, Stretch(None, None)
        shares = self._predicates(condition) if condition else table.shares(everything, table.bounds(everything))
        return decode_cells(
            table.cells(shares, numbered=False), table.target, self.known, row_reading(table.database.source), self.key
        )

    def _changes(self, decoded: Decoded) -> DataFrame:
        if decoded.rows is not None:
            return decoded.rows.frame
        types = ", ".join(f"{quoted_column(c.name)} {c.type}" for c in self.columns)
        none = local_relation(self.table.database.spark, [], types)
        row = F.struct(*[F.col(quoted_column(c.name)).alias(c.name) for c in self.columns])
        return full_load_frame(none, self.key, row, LoadMark("", datetime.now(UTC)))

    def alone(self, max_wait: float) -> AbstractContextManager[None]:
        """Return a null context: the database has no lock for ingestion runs."""
        return nullcontext()

    def load(self, condition: KeyCondition | None, target: IcebergTable, position: Position, changes: Loading) -> Batch:
        spec, database = self.table.target, self.table.database
        check_cursor(position, database.source)
        # the comparison may have taken long: read the current columns
        known = replace(known_of(target, spec), folds=False)
        now = replace(self, table=SourceTable(database, spec, known.types), known=known)
        check_kind(now.table, position)
        time = now.now()
        decoded = now._decoded(condition)
        try:
            rows = changes(now._changes(decoded), None, time)
        finally:
            database.spark.catalog.clearCache()
        # an ingestion run that started before must see that the table moved, although the cursor did not
        position = replace(position, offsets={**position.offsets, "repaired": time.isoformat()})
        return Batch(spec, self.key, decoded.columns, Rows(rows), position, source=SourceFacts(in_order=False))

    def _predicates(self, condition: KeyCondition) -> list[str]:
        dialect = self.table.database.dialect

        def literal(number: int) -> str:
            text = condition.text(number)
            return dialect.moment(datetime.fromisoformat(text), condition.kind) if condition.kind in _TIMES else text

        return condition.conditions(dialect.name(condition.column), literal, self.table.database.source.partitions)

    def now(self) -> datetime:
        database = self.table.database
        if database.source.dialect == "sqlite":
            # a file has only this machine's clock
            return datetime.now(UTC)
        micros = "unix_micros(CAST(now AS timestamp)) AS micros"
        row = database.query("SELECT CURRENT_TIMESTAMP AS now").selectExpr(micros).first()
        assert row is not None
        return moment(row["micros"])


open_source = Jdbc
