"""An Iceberg table for the jobs: metadata without py4j."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakecdc.contract.errors import ConflictError, InputError, SourceUnavailableError
from lakecdc.iceberg.explain import is_conflict
from lakecdc.iceberg.jvm import java_class_name, java_message, jvm, listed, mapping, text_mapping
from lakecdc.iceberg.stored_types import table_with, with_stored_types
from lakecdc.metadata.last_write import SnapshotFacts
from lakecdc.metadata.positions import Carrier, Position, current_position, nearest_carrier
from lakecdc.sql import literal, quoted, quoted_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MAIN = "main"
#: Spark setting of the cache in which an executor's tasks share delete files
DELETES_SHARED = "spark.sql.iceberg.executor-cache.delete-files.enabled"
_MISSING = {"NoSuchTableException", "NoSuchNamespaceException", "AnalysisException"}
# members of a nested type in Iceberg's JSON, with the names of their ids
_MEMBERS = {"element": "element-id", "key": "key-id", "value": "value-id"}


@dataclass(frozen=True)
class Field:
    """A top-level column, with Iceberg's own name of its type, such as ``long`` or ``decimal(12, 2)``."""

    id: int
    name: str
    type: str
    required: bool


@dataclass(frozen=True)
class Snapshot(SnapshotFacts):
    """Facts of one snapshot."""

    parent_id: int | None
    sequence_number: int

    @property
    def rows(self) -> int | None:
        """Return the rows of its data files, including deleted ones, as counted by its writer; None if not counted."""
        total = self.summary.get("total-records")
        return None if total is None else int(total)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Snapshot:
        """Parse a snapshot from Iceberg's JSON."""
        summary = dict(document.get("summary", {}))
        operation = summary.pop("operation", None)
        return cls(
            id=document["snapshot-id"],
            parent_id=document.get("parent-snapshot-id"),
            sequence_number=document.get("sequence-number", 0),
            timestamp_ms=document["timestamp-ms"],
            operation=operation,
            summary=summary,
        )


class IcebergTable:
    """One table of one catalog.

    :param name: ``namespace.name``.
    :ivar lease: token of the lease that this run holds (see :mod:`lakecdc.iceberg.lease`); None if it holds none.
    :ivar reader: returns the rows of a snapshot that takes too much memory (see :mod:`lakecdc.key_search.bounded`).
    :raises InputError: the table does not exist.
    :raises SourceUnavailableError: its metadata cannot be loaded.
    """

    def __init__(self, spark: SparkSession, catalog: str, name: str) -> None:
        self.spark, self.catalog, self.name = spark, catalog, name
        self.lease: str | None = None
        self.reader: Callable[[Snapshot], DataFrame | None] | None = None
        self._known_schemas = ""
        try:
            self.java = jvm(spark).org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
                spark._jsparkSession,
                self.sql_name,
            )
        except Exception as error:
            if {java_class_name(error), type(error).__name__} & _MISSING:
                raise InputError(
                    f"The table does not exist in catalog {catalog!r}.",
                    table=name,
                    hint="Check the name, or run ingest first, which creates it.",
                ) from error
            raise _unloadable(name, error) from error
        self._read_promoted_keys()

    @property
    def sql_name(self) -> str:
        """Return catalog, namespace and name, quoted for SQL."""
        return quoted(f"{self.catalog}.{self.name}")

    def refresh(self) -> IcebergTable:
        """Read the newest metadata, and return the table itself."""
        self.java.refresh()
        self._read_promoted_keys()
        return self

    def _read_promoted_keys(self) -> None:
        """Disable the shared delete cache if a column's type was promoted.

        Iceberg (1.12) caches the keys of an equality delete in the type of its first reader, and hands them to every
        later reader. If a key column was an ``int`` for the first and is a ``bigint`` for the next one, such as after a
        read of an older snapshot, no key matches, and deleted rows reappear.
        """
        schemas = self.java.schemas()
        # its Python text would be read element by element, up to an exception of Java's
        if (ids := str(schemas.keySet().toString())) == self._known_schemas:
            return
        self._known_schemas, to_json = ids, jvm(self.spark).org.apache.iceberg.SchemaParser.toJson
        if schemas.size() == 1:
            # no column has another type in an older one
            return
        if has_promoted_column(json.loads(to_json(schema)) for schema in mapping(schemas).values()):
            self.spark.conf.set(DELETES_SHARED, "false")

    @property
    def uuid(self) -> str:
        return str(self.java.uuid())

    @property
    def location(self) -> str:
        """Return the table's base location."""
        return str(self.java.location())

    @property
    def format_version(self) -> int:
        """Return the Iceberg format version of the table's metadata."""
        return int(self.java.operations().current().formatVersion())

    @property
    def is_encrypted(self) -> bool:
        """Check whether Iceberg encrypts the table's files."""
        return str(self.java.encryption().getClass().getSimpleName()) != "PlaintextEncryptionManager"

    @property
    def properties(self) -> dict[str, str]:
        return text_mapping(self.spark, self.java.properties())

    @property
    def fields(self) -> list[Field]:
        """Return the top-level columns of the current schema, in order."""
        schema = self.java.schema()
        return [Field(c["id"], c["name"], _type(schema, c), c["required"]) for c in self.schema_fields]

    @property
    def schema_fields(self) -> list[dict[str, Any]]:
        """Return the top-level columns of the current schema as Iceberg's JSON has them."""
        text = jvm(self.spark).org.apache.iceberg.SchemaParser.toJson(self.java.schema())
        return list(json.loads(text)["fields"])

    @property
    def column_names(self) -> list[str]:
        """Return the names of the top-level columns, in order."""
        return [field.name for field in self.fields]

    def field_id(self, column: str) -> int:
        """Return the field id of a column.

        :raises InputError: the column does not exist.
        """
        field = self.java.schema().findField(column)
        if field is None:
            raise InputError(f"The column {column!r} does not exist.", table=self.name)
        return int(field.fieldId())

    def names_at(self, snapshot_id: int) -> dict[str, str]:
        """Return the current names of top-level columns by those in a snapshot, without dropped ones."""
        schema = self.java.schemas().get(self.java.snapshot(snapshot_id).schemaId()) or self.java.schema()
        now = {f.id: f.name for f in self.fields}
        return {str(c.name()): now[c.fieldId()] for c in listed(schema.columns()) if c.fieldId() in now}

    @property
    def identifier_columns(self) -> list[str]:
        """Return the names of the identifier fields in schema order."""
        names = set(listed(self.java.schema().identifierFieldNames()))
        return [name for name in self.column_names if name in names]

    def head(self, branch: str = MAIN) -> Snapshot | None:
        """Return the newest snapshot of a branch; None for an empty table or an unknown branch."""
        return self._snapshot(self.java.snapshot(branch))

    def has_branch(self, name: str) -> bool:
        """Check whether a branch exists; tags do not count."""
        ref = self.java.refs().get(name)
        return ref is not None and bool(ref.isBranch())

    def snapshot(self, snapshot_id: int) -> Snapshot | None:
        """Return a snapshot by id; None once it has expired."""
        return self._snapshot(self.java.snapshot(snapshot_id))

    def ancestors(self, branch: str = MAIN) -> Iterator[Snapshot]:
        """Yield the snapshots of a branch from its head towards the root, as far as metadata still has them."""
        head = self.head(branch)
        if head is not None:
            yield from self.ancestors_of(head)

    def ancestors_of(self, snapshot: Snapshot) -> Iterator[Snapshot]:
        """Yield a snapshot and its ancestors towards the root, as far as metadata still has them."""
        ancestor: Snapshot | None = snapshot
        while ancestor is not None:
            yield ancestor
            ancestor = self.snapshot(ancestor.parent_id) if ancestor.parent_id is not None else None

    def metadata(self, kind: str, snapshot_id: int | None = None) -> DataFrame:
        """Read a metadata table such as ``files`` or ``entries``, by default of the current state."""
        from pyspark.sql import DataFrame

        fields = self.schema_fields
        if (stored := with_stored_types(fields)) == fields:
            at = f" VERSION AS OF {snapshot_id}" if snapshot_id is not None else ""
            return self.spark.sql(f"SELECT * FROM {self.sql_name}.{kind}{at}")
        apache, options = jvm(self.spark).org.apache.iceberg, jvm(self.spark).java.util.HashMap()
        of_kind, java_table = apache.MetadataTableType.valueOf(kind.upper()), table_with(self, stored, snapshot_id)
        rows = apache.spark.SparkTableUtil.loadMetadataTable(self.spark._jsparkSession, java_table, of_kind, options)
        return DataFrame(rows, self.spark)

    def read(
        self, snapshot_id: int | None = None, columns: list[str] | tuple[str, ...] = ("*",), where: str = "true"
    ) -> DataFrame:
        """Read rows with Iceberg's own reader, by default of the current state, by SQL expressions and a condition."""
        if self.reader is not None:
            snapshot = self.head() if snapshot_id is None else self.snapshot(snapshot_id)
            if snapshot is not None and (rows := self.reader(snapshot)) is not None:
                # Spark reads a snapshot with the column names of its time, and a branch with the current ones
                if snapshot_id is not None:
                    names = self.names_at(snapshot.id).items()
                    rows = rows.selectExpr(*[f"{quoted_column(now)} AS {quoted_column(old)}" for old, now in names])
                return rows.where(where).selectExpr(*columns)
        version = self._version(snapshot_id)
        return self.spark.sql(f"SELECT {', '.join(columns)} FROM {self.sql_name}{version} WHERE {where}")

    def _version(self, snapshot_id: int | None) -> str:
        return "" if snapshot_id is None else f" VERSION AS OF {snapshot_id}"

    def update_properties(self, changes: Mapping[str, str | None], transaction: Any = None) -> None:
        """Set table properties, or remove those with None, in one metadata commit or in a Java transaction."""
        if not changes:
            return
        update = (transaction or self.java).updateProperties()
        for key, value in changes.items():
            update = update.remove(key) if value is None else update.set(key, value)
        update.commit()

    def _snapshot(self, java: Any) -> Snapshot | None:
        if java is None:
            return None
        # one call instead of one per summary entry
        return Snapshot.of(json.loads(jvm(self.spark).org.apache.iceberg.SnapshotParser.toJson(java)))


def carrier_of(snapshots: Iterable[Snapshot]) -> Carrier | None:
    """Find the nearest snapshot with a source position among a snapshot and its ancestors, newest first."""
    return nearest_carrier((each.id, each.summary) for each in snapshots)


def source_positions(table: IcebergTable) -> list[Position]:
    """Return the current position of each job that feeds the table."""
    carrier = carrier_of(table.ancestors())
    feeds = [each.position.feed for each in carrier.feeds] if carrier else []
    return [position for feed in feeds if (position := current_position(carrier, table.properties, feed))]


def source_position(table: IcebergTable, feed: str | None = None) -> Position | None:
    """Return the position in its source up to which a table is known to be fed; see :func:`current_position`."""
    return current_position(carrier_of(table.ancestors()), table.properties, feed)


def exists(spark: SparkSession, catalog: str, name: str) -> bool:
    """Check whether the catalog has the table.

    :raises SourceUnavailableError: the table's metadata cannot be loaded.
    """
    try:
        return bool(spark.catalog.tableExists(quoted(f"{catalog}.{name}")))
    except Exception as error:
        raise _unloadable(name, error) from error


def open_if_there(spark: SparkSession, catalog: str, name: str) -> IcebergTable | None:
    """Load a table; return None if the catalog does not have it.

    :raises SourceUnavailableError: the table's metadata cannot be loaded.
    """
    return IcebergTable(spark, catalog, name) if exists(spark, catalog, name) else None


def _unloadable(name: str, error: Exception) -> SourceUnavailableError:
    return SourceUnavailableError(
        f"Cannot load the table: {java_message(error)}",
        table=name,
        hint="Check that the catalog is reachable, and that the metadata file that it names is intact.",
    )


def _type(schema: Any, column: dict[str, Any]) -> str:
    kind = column["type"]
    return kind if isinstance(kind, str) else str(schema.findType(column["id"]).toString())


def has_promoted_column(schemas: Iterable[Mapping[str, Any]]) -> bool:
    """Check whether a column, nested ones included, has more than one type in the schemas (Iceberg's JSON)."""
    types: dict[int, str] = {}
    return any(types.setdefault(id, kind) != kind for schema in schemas for id, kind in _primitives(schema))


def _primitives(kind: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    members = [(field["id"], field["type"]) for field in kind.get("fields", ())]
    members += [(kind[id], kind[name]) for name, id in _MEMBERS.items() if id in kind]
    for id, member in members:
        if isinstance(member, str):
            yield id, member
        else:
            yield from _primitives(member)


class Branch(IcebergTable):
    """A table as one of its branches shows it: head, ancestors and rows are the branch's, the columns are current."""

    def __init__(self, table: IcebergTable, branch: str) -> None:
        super().__init__(table.spark, table.catalog, table.name)
        self._branch = branch
        self.refresh()

    def head(self, branch: str | None = None) -> Snapshot | None:
        """Return the newest snapshot of the branch, or of another one."""
        return super().head(branch or self._branch)

    def ancestors(self, branch: str | None = None) -> Iterator[Snapshot]:
        """Yield the snapshots of the branch, or of another one, from its head towards the root."""
        return super().ancestors(branch or self._branch)

    def _version(self, snapshot_id: int | None) -> str:
        return super()._version(snapshot_id) or f" VERSION AS OF {literal(self._branch)}"


def count_rows(table: IcebergTable, where: str, values: Mapping[str, Any]) -> int:
    """Count the rows that meet a SQL condition with named parameters."""
    row = table.spark.sql(f"SELECT count(*) FROM {table.sql_name} WHERE {where}", dict(values)).first()
    assert row is not None
    return int(row[0])


def delete_rows(table: IcebergTable, where: str, values: Mapping[str, Any]) -> int:
    """Delete the rows that meet a condition in one commit, and return their number; see :func:`count_rows`.

    :raises ConflictError: another writer removed or added such rows meanwhile; none was deleted.
    """
    count = count_rows(table, where, values)
    if not count:
        return 0
    try:
        table.spark.sql(f"DELETE FROM {table.sql_name} WHERE {where}", dict(values))
    except Exception as error:
        if not is_conflict(error):
            raise
        raise ConflictError(
            "Another writer changed the same rows meanwhile; none was deleted.",
            table=table.name,
            hint="Run the job again.",
        ) from error
    return count
