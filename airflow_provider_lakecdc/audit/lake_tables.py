"""The two tables: their rows, whose annotations become the columns' docs, schema and partitions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar, get_args, get_origin, get_type_hints

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
class AuditRow:
    """What one step of a Spark application did to one table. Snapshot ids are text, as in reports."""

    row_id: Annotated[str, "the application and a number"]
    application: Annotated[str, "id of the application, also lakecdc.commit-id of the snapshot that its rows came with"]
    job: Annotated[str, "the job, or the step of a job of several steps"]
    table: Annotated[str, "namespace.name"]
    started_at: Annotated[datetime, "when the job began; without a report, when it was submitted"]
    finished_at: Annotated[datetime, "when the job ended; the rows are partitioned by its day (UTC)"]
    outcome: Annotated[str, "done, nothing, skipped, unsupported, conflict or failed"]
    is_dry_run: Annotated[bool, "nothing was changed, regardless of the outcome"]
    dag_id: Annotated[str, "DAG that the application belongs to"]
    run_id: Annotated[str, "its run"]
    task_id: Annotated[str, "its task"]
    try_number: Annotated[int, "the task's try"]
    map_index: Annotated[int | None, "of a mapped task"] = None
    owner: Annotated[str | None, "owner of the task"] = None
    triggering_user_name: Annotated[str | None, "who triggered the run, if any user did"] = None
    spark_application_id: Annotated[str | None, "id of the application in Spark"] = None
    failure_class: Annotated[str | None, "conflict, bad input, cluster or unknown"] = None
    reason: Annotated[str | None, "why, unless it is plainly done"] = None
    snapshot_before: Annotated[str | None, "id of the head before"] = None
    snapshot_after: Annotated[str | None, "id of the head after"] = None
    predicted_core_seconds: Annotated[float | None, "core_seconds that the plan expected"] = None
    guessed_core_seconds: Annotated[float | None, "the same before correction by measured runs"] = None
    core_seconds: Annotated[float | None, "CPU seconds of Spark's tasks"] = None
    bytes_read: Annotated[int | None, "bytes of the files that were rewritten"] = None
    bytes_written: Annotated[int | None, "bytes of all new files"] = None
    proof: Annotated[str | None, "what was proven before the commit, or why it was not"] = None
    metrics: Annotated[Mapping[str, Any], "all metrics of the report, as JSON"] = field(default_factory=dict)


@dataclass(frozen=True)
class HealthRow:
    """A table's health at one time, see ``lakecdc.metadata.health.TableHealth``."""

    row_id: Annotated[str, "the measurement and a number"]
    table: Annotated[str, "namespace.name"]
    measured_at: Annotated[datetime, "when it was measured; the rows are partitioned by its day (UTC)"]
    score: Annotated[float, "from 100, nothing to gain, down to 0"]
    lost: Annotated[Mapping[str, Any], "points that the score lacks, by reason, as JSON"] = field(default_factory=dict)
    data_files: Annotated[int | None, "live data files"] = None
    data_bytes: Annotated[int | None, "their bytes"] = None
    delete_file_reads: Annotated[
        int | None, "delete files that a scan of the table applies, each once for every data file that it applies to"
    ] = None
    delete_read_cost: Annotated[
        float | None, "the same, position deletes counted a fifth and deletion vectors a twentieth"
    ] = None
    equality_delete_files: Annotated[int | None, "live files of equality deletes"] = None
    position_delete_files: Annotated[int | None, "live files of position deletes"] = None
    deletion_vectors: Annotated[int | None, "live deletion vectors"] = None
    snapshots: Annotated[int | None, "snapshots that the table keeps"] = None
    manifests: Annotated[int | None, "manifests of the head"] = None
    facts: Annotated[Mapping[str, Any], "all other measurements, as JSON"] = field(default_factory=dict)

    @classmethod
    def of(cls, row_id: str, table: str, measured_at: datetime, facts: Mapping[str, Any]) -> HealthRow:
        """Create a row from :meth:`lakecdc.metadata.health.TableHealth.facts`, perhaps with further keys."""
        own = {name: value for name, value in facts.items() if name in _MEASURED}
        return cls(row_id, table, measured_at, **own, facts={n: v for n, v in facts.items() if n not in _MEASURED})

    @classmethod
    def of_all(cls, id: str, measured_at: datetime, facts: Mapping[str, Mapping[str, Any]]) -> list[HealthRow]:
        """Create the rows of one measurement of several tables; facts are by table."""
        return [cls.of(f"{id}/{number}", table, measured_at, facts[table]) for number, table in enumerate(facts)]

    def as_facts(self) -> dict[str, Any]:
        """Return the facts that :meth:`of` was created from."""
        return {**{name: getattr(self, name) for name in _MEASURED}, **self.facts}


# columns that are facts of the measurement
_MEASURED = [each.name for each in fields(HealthRow) if each.name not in ("row_id", "table", "measured_at", "facts")]


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
    """A table of the whole lake, partitioned by the day of its timestamp column ``moment``."""

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
        decoded = {each.name: json.loads(stored[each.name]) for each in self.columns if each.type is Mapping}
        return self.row(**{**{each.name: stored[each.name] for each in self.columns}, **decoded})

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


AUDIT = LakeTable(names.AUDIT, AuditRow, "finished_at")
HEALTH = LakeTable(names.HEALTH, HealthRow, "measured_at")
#: by name
LAKE_TABLES: dict[str, LakeTable[Any]] = {each.name: each for each in (AUDIT, HEALTH)}
