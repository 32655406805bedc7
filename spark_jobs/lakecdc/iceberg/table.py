"""An Iceberg table as the jobs see it: metadata without py4j."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakecdc.contract.errors import InputError, SourceUnavailableError
from lakecdc.iceberg.delete_cache import has_promoted_column, stop_sharing_deletes
from lakecdc.iceberg.jvm import java_class_name, java_message, jvm, listed, mapping
from lakecdc.metadata.last_write import SnapshotFacts
from lakecdc.metadata.positions import Carrier, nearest_carrier
from lakecdc.sql import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MAIN = "main"
_MISSING = {"NoSuchTableException", "NoSuchNamespaceException", "AnalysisException"}


@dataclass(frozen=True)
class Field:
    """A top-level column.

    :param id: Iceberg field id.
    :param type: Iceberg's own name of the type, such as ``long`` or ``decimal(12, 2)``.
    :param required: whether it is NOT NULL.
    """

    id: int
    name: str
    type: str
    required: bool


@dataclass(frozen=True)
class Snapshot:
    """One snapshot's bookkeeping.

    :param operation: append, overwrite, delete or replace.
    """

    id: int
    parent_id: int | None
    sequence_number: int
    timestamp_ms: int
    operation: str | None
    summary: dict[str, str]

    @property
    def rows(self) -> int | None:
        """Rows of its data files, deleted ones included, as its writer has counted them; None if it has not."""
        total = self.summary.get("total-records")
        return None if total is None else int(total)

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Snapshot:
        """Make it of what metadata has in JSON."""
        summary = dict(found.get("summary", {}))
        operation = summary.pop("operation", None)
        return cls(
            id=found["snapshot-id"],
            parent_id=found.get("parent-snapshot-id"),
            sequence_number=found.get("sequence-number", 0),
            timestamp_ms=found["timestamp-ms"],
            operation=operation,
            summary=summary,
        )


class IcebergTable:
    """One table of one catalog.

    :param spark: the session.
    :param catalog: the catalog's name.
    :param name: ``namespace.name``.
    :ivar lease: token of the lease that this run holds (see :mod:`lakecdc.iceberg.lease`); None: it holds none.
    :raises InputError: if there is no such table.
    :raises SourceUnavailableError: if its metadata cannot be loaded.
    """

    def __init__(self, spark: SparkSession, catalog: str, name: str) -> None:
        self.spark, self.catalog, self.name = spark, catalog, name
        self.lease: str | None = None
        self._known_schemas = ""
        try:
            self.java = jvm(spark).org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
                spark._jsparkSession,
                self.sql_name,
            )
        except Exception as error:
            if {java_class_name(error), type(error).__name__} & _MISSING:
                raise InputError(
                    f"There is no such table in catalog {catalog!r}.",
                    table=name,
                    hint="Check the name, or ingest into it first: the ingest job creates it.",
                ) from error
            raise _unloadable(name, error) from error
        self._read_promoted_keys()

    @property
    def sql_name(self) -> str:
        """Catalog, namespace and name, quoted for SQL."""
        return quoted(f"{self.catalog}.{self.name}")

    def refresh(self) -> IcebergTable:
        """Read the newest metadata; returns the table itself."""
        self.java.refresh()
        self._read_promoted_keys()
        return self

    def _read_promoted_keys(self) -> None:
        """Keep the session's readers from taking the deletes of a key column in the type that it had before."""
        schemas = self.java.schemas()
        if (ids := str(schemas.keySet())) == self._known_schemas:
            return
        self._known_schemas, to_json = ids, jvm(self.spark).org.apache.iceberg.SchemaParser.toJson
        if has_promoted_column(json.loads(to_json(schema)) for schema in mapping(schemas).values()):
            stop_sharing_deletes(self.spark)

    @property
    def uuid(self) -> str:
        """The table's UUID."""
        return str(self.java.uuid())

    @property
    def location(self) -> str:
        """The table's base location."""
        return str(self.java.location())

    @property
    def format_version(self) -> int:
        """Iceberg format version of the table's metadata."""
        return int(self.java.operations().current().formatVersion())

    @property
    def is_encrypted(self) -> bool:
        """Whether the table's files are encrypted by Iceberg."""
        return str(self.java.encryption().getClass().getSimpleName()) != "PlaintextEncryptionManager"

    @property
    def properties(self) -> dict[str, str]:
        """Table properties."""
        return mapping(self.java.properties())

    @property
    def fields(self) -> list[Field]:
        """Top-level columns of the current schema, in order."""
        schema = self.java.schema()
        text = jvm(self.spark).org.apache.iceberg.SchemaParser.toJson(schema)
        return [Field(c["id"], c["name"], _type(schema, c), c["required"]) for c in json.loads(text)["fields"]]

    @property
    def column_names(self) -> list[str]:
        """Names of the top-level columns, in order."""
        return [field.name for field in self.fields]

    def field_id(self, column: str) -> int:
        """Field id of a column.

        :raises InputError: if there is no such column.
        """
        found = self.java.schema().findField(column)
        if found is None:
            raise InputError(f"There is no column {column!r}.", table=self.name)
        return int(found.fieldId())

    def names_at(self, snapshot_id: int) -> dict[str, str]:
        """The names that top-level columns have now, by those they had in a snapshot; dropped ones are left out."""
        schema = self.java.schemas().get(self.java.snapshot(snapshot_id).schemaId()) or self.java.schema()
        now = {f.id: f.name for f in self.fields}
        return {str(c.name()): now[c.fieldId()] for c in listed(schema.columns()) if c.fieldId() in now}

    @property
    def identifier_columns(self) -> list[str]:
        """Names of the identifier fields in schema order."""
        names = set(listed(self.java.schema().identifierFieldNames()))
        return [name for name in self.column_names if name in names]

    def head(self, branch: str = MAIN) -> Snapshot | None:
        """The newest snapshot of a branch; None for an empty table or an unknown branch."""
        java = self.java.snapshot(branch)
        return self._snapshot(java) if java is not None else None

    def has_branch(self, name: str) -> bool:
        """Tell whether there is such a branch; a tag is none."""
        ref = self.java.refs().get(name)
        return ref is not None and bool(ref.isBranch())

    def snapshot(self, snapshot_id: int) -> Snapshot | None:
        """A snapshot by id; None once it has expired."""
        java = self.java.snapshot(snapshot_id)
        return self._snapshot(java) if java is not None else None

    def ancestors(self, branch: str = MAIN) -> Iterator[Snapshot]:
        """The snapshots of a branch from its head towards the root, as far as metadata still holds them."""
        head = self.head(branch)
        if head is not None:
            yield from self.ancestors_of(head)

    def ancestors_of(self, snapshot: Snapshot) -> Iterator[Snapshot]:
        """A snapshot and those before it towards the root, as far as metadata still holds them."""
        found: Snapshot | None = snapshot
        while found is not None:
            yield found
            found = self.snapshot(found.parent_id) if found.parent_id is not None else None

    def metadata(self, kind: str, snapshot_id: int | None = None) -> DataFrame:
        """A metadata table such as ``files``, ``entries`` or ``position_deletes``.

        :param kind: its name.
        :param snapshot_id: state to look at; default: the current one.
        """
        at = f" VERSION AS OF {snapshot_id}" if snapshot_id is not None else ""
        return self.spark.sql(f"SELECT * FROM {self.sql_name}.{kind}{at}")

    def read(self, snapshot_id: int | None = None, columns: str = "*", where: str = "true") -> DataFrame:
        """Rows of the table as Iceberg's own reader gives them.

        :param snapshot_id: state to read; default: the current one.
        :param columns: SQL select list.
        :param where: SQL condition.
        """
        at = f" VERSION AS OF {snapshot_id}" if snapshot_id is not None else ""
        return self.spark.sql(f"SELECT {columns} FROM {self.sql_name}{at} WHERE {where}")

    def update_properties(self, changes: dict[str, str | None]) -> None:
        """Set, or with None remove, table properties in one metadata commit."""
        update = self.java.updateProperties()
        for key, value in changes.items():
            update = update.remove(key) if value is None else update.set(key, value)
        update.commit()

    def _snapshot(self, java: Any) -> Snapshot:
        # one call for what takes one for each entry of the summary otherwise
        return Snapshot.of(json.loads(jvm(self.spark).org.apache.iceberg.SnapshotParser.toJson(java)))


def facts_of(snapshot: Snapshot) -> SnapshotFacts:
    """A snapshot as :mod:`lakecdc.metadata` knows it."""
    return SnapshotFacts(snapshot.id, snapshot.timestamp_ms, snapshot.operation, snapshot.summary)


def carrier_of(snapshots: Iterable[Snapshot]) -> Carrier | None:
    """The nearest snapshot that carries a source position.

    :param snapshots: a snapshot and those before it, newest first.
    """
    return nearest_carrier((each.id, each.summary) for each in snapshots)


def exists(spark: SparkSession, catalog: str, name: str) -> bool:
    """Tell whether the catalog has the table.

    :raises SourceUnavailableError: if the table's metadata cannot be loaded.
    """
    try:
        return bool(spark.catalog.tableExists(quoted(f"{catalog}.{name}")))
    except Exception as error:
        raise _unloadable(name, error) from error


def open_if_there(spark: SparkSession, catalog: str, name: str) -> IcebergTable | None:
    """Load a table; None if the catalog has none of that name.

    :raises SourceUnavailableError: if the table's metadata cannot be loaded.
    """
    return IcebergTable(spark, catalog, name) if exists(spark, catalog, name) else None


def _unloadable(name: str, error: Exception) -> SourceUnavailableError:
    return SourceUnavailableError(
        f"The table cannot be loaded: {java_message(error)}",
        table=name,
        hint="See that the catalog can be reached, and that the metadata file which it names is there and whole.",
    )


def _type(schema: Any, column: dict[str, Any]) -> str:
    kind = column["type"]
    return kind if isinstance(kind, str) else str(schema.findType(column["id"]).toString())
