"""Table definitions: creation, added and widened columns, the view, live partition specs."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakecdc.contract import fields
from lakecdc.contract.errors import InputError
from lakecdc.contract.merging import Merge
from lakecdc.contract.target import ORDER_COLUMN, TIME_COLUMN, is_own_column
from lakecdc.iceberg.jvm import java_list, java_message, jvm, listed, mapping
from lakecdc.iceberg.table import IcebergTable, carrier_of, exists
from lakecdc.iceberg.widening import is_wider, no_change
from lakecdc.metadata import names
from lakecdc.sql import literal, parsed_type, quoted, quoted_column, sql_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

_SIDE_TABLE = {"format-version": "2", "commit.retry.num-retries": "20"}
#: property of small tables, whose deletions should not leave delete files
COPY_ON_WRITE = {"write.delete.mode": "copy-on-write"}


def spark_types(table: IcebergTable) -> dict[str, str]:
    """Return the Spark SQL types of a table's columns, as of its last load or refresh."""
    return {f.name: sql_type(f.dataType) for f in spark_schema(table).fields}


def spark_schema(table: IcebergTable, columns: Sequence[str] | None = None) -> StructType:
    """Return Spark's schema of a table, as of its last load or refresh, or of some of its columns, in their order."""
    from pyspark.sql.types import StructType

    java = jvm(table.spark).org.apache.iceberg.spark.SparkSchemaUtil.convert(table.java.schema())
    schema = StructType.fromJson(json.loads(java.json()))
    return schema if columns is None else StructType([schema[name] for name in columns])


@dataclass(frozen=True)
class TableDefinition:
    """Definition of a table to create: columns as name, Spark SQL type and NOT NULL, and transforms in SQL.

    :param identifier: the key columns, NOT NULL; may be empty.
    """

    columns: Sequence[tuple[str, str, bool]]
    partition_by: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    identifier: Sequence[str] = ()


def create_side_table(
    spark: SparkSession,
    catalog: str,
    name: str,
    columns: Sequence[tuple[str, str, bool]],
    *,
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
) -> IcebergTable:
    """Create a table that ingestion maintains beside its targets: without a key, and with several writers.

    See :class:`TableDefinition`.

    :raises InputError: Iceberg refuses the definition.
    """
    settings = {**_SIDE_TABLE, **(properties or {})}
    return create_table(spark, catalog, name, TableDefinition(columns, partition_by, settings))


def create_table(spark: SparkSession, catalog: str, name: str, definition: TableDefinition) -> IcebergTable:
    """Create a table with identifier fields.

    :raises InputError: Iceberg refuses the definition.
    """
    _make_namespace(spark, f"{quoted(catalog)}.{quoted(name.rpartition('.')[0])}")
    types = {column: sql_type(parsed_type(kind)) for column, kind, _ in definition.columns}
    columns = ", ".join(
        f"{quoted_column(c)} {types[c]}{' NOT NULL' * required}" for c, _, required in definition.columns
    )
    partitioned = f" PARTITIONED BY ({', '.join(definition.partition_by)})" if definition.partition_by else ""
    settings = ", ".join(f"{literal(k)}={literal(v)}" for k, v in definition.properties.items())
    sql_name = f"{quoted(catalog)}.{quoted(name)}"
    try:
        spark.sql(f"CREATE TABLE {sql_name} ({columns}) USING iceberg{partitioned} TBLPROPERTIES ({settings})")
    except Exception as error:
        # the answer may be lost: an empty table is this one, or another run's with the same definition
        if not (exists(spark, catalog, name) and IcebergTable(spark, catalog, name).head() is None):
            raise InputError(
                f"Cannot create the table: {java_message(error)}",
                table=name,
                hint="Check partition_by, columns and properties of its target.",
            ) from error
    table = IcebergTable(spark, catalog, name)
    if definition.identifier:
        update = table.java.updateSchema()
        update.setIdentifierFields(java_list(spark, definition.identifier))
        update.commit()
    return table.refresh()


def _make_namespace(spark: SparkSession, sql_name: str) -> None:
    statement = f"CREATE NAMESPACE IF NOT EXISTS {sql_name}"
    try:
        spark.sql(statement)
    except Exception as error:
        # catalogs that check before they create fail if another writer creates it in between; now it exists
        log.info("%s: retrying after %s", sql_name, java_message(error))
        spark.sql(statement)


def order_by(table: IcebergTable, columns: Sequence[str]) -> None:
    """Set the table's sort order, which writers keep within files and ``sort_data_files`` across files."""
    listed = ", ".join(quoted_column(column) for column in columns)
    table.spark.sql(f"ALTER TABLE {table.sql_name} WRITE LOCALLY ORDERED BY {listed}")
    table.refresh()


def make_view(table: IcebergTable, hidden: Sequence[str]) -> None:
    """Create or replace the view ``<table>_view`` without lakecdc's own columns, if the catalog supports views."""
    columns = ", ".join(quoted_column(c) for c in table.column_names if c not in hidden)
    view = f"{table.name}_view"
    try:
        table.spark.sql(
            f"CREATE OR REPLACE VIEW {quoted(table.catalog)}.{quoted(view)} AS SELECT {columns} FROM {table.sql_name}"
        )
    except Exception as error:
        log.warning("%s: no view %s: %s", table.name, view, java_message(error))


def evolve(table: IcebergTable, columns: Sequence[tuple[str, str]]) -> list[str]:
    """Add missing columns and widen types where Iceberg allows it, in one schema commit; return the changes.

    :param columns: current names and Spark SQL types at the source.
    :raises InputError: a column cannot be changed to its new type, or a new name differs from a column's only in case;
        nothing is changed then.
    """
    present = {f.name: (f.dataType, f) for f in table.spark.table(table.sql_name).schema.fields}
    update, done = table.java.updateSchema(), []
    lowered = {name.lower(): name for name in present}
    for name, kind in columns:
        target_type = parsed_type(kind)
        if name not in present:
            _check_case(table, name, lowered)
            update.addColumn(name, _iceberg_type(table, target_type))
            done.append(f"added {name} {kind}")
        elif present[name][0] != target_type and _needs_change(table, name, present[name][0], target_type):
            update.updateColumn(name, _iceberg_type(table, target_type).asPrimitiveType())
            done.append(f"widened {name} from {sql_type(present[name][0])} to {kind}")
    if done:
        update.commit()
        table.refresh()
    return done


def _check_case(table: IcebergTable, name: str, lowered: Mapping[str, str]) -> None:
    if name.lower() in lowered:
        raise InputError(
            f"The source's column {name!r} differs from the table's {lowered[name.lower()]!r} only in case.",
            table=table.name,
            hint="Exclude it with exclude_columns, rename it with clean.rename, or rename the table's column.",
        )


def rename_columns(table: IcebergTable, names: Mapping[str, str], properties: Mapping[str, str]) -> None:
    """Rename columns, which keep their field ids and may swap names, and set properties in one commit."""
    transaction = table.java.newTransaction()
    update = transaction.updateSchema()
    for old, new in names.items():
        update.renameColumn(old, new)
    # Iceberg renames one by one, and loses identifier fields whose names are swapped
    update.setIdentifierFields(java_list(table.spark, [names.get(c, c) for c in table.identifier_columns]))
    update.commit()
    table.update_properties(properties, transaction)
    transaction.commitTransaction()
    table.refresh()


def drop_columns(table: IcebergTable, names: Sequence[str]) -> None:
    """Drop columns in one schema commit."""
    update = table.java.updateSchema()
    for name in names:
        update.deleteColumn(name)
    update.commit()
    table.refresh()


def column_path(table: IcebergTable, name: str) -> str:
    """Return a column's full name as SQL; unknown names refer to members of a struct."""
    return quoted_column(name) if name in table.column_names else quoted(name)


def live_specs(table: IcebergTable) -> list[int]:
    """Return the ids of the specs that live data files may have, from the manifest list alone."""
    head = table.java.currentSnapshot()
    return sorted(live_spec_ids(table, head)) if head else []


def live_spec_ids(table: IcebergTable, snapshot: Any) -> set[int]:
    """Return the ids of the specs that live data files of a Java ``Snapshot`` may have."""
    return {int(m.partitionSpecId()) for m in listed(snapshot.dataManifests(table.java.io())) if has_live_files(m)}


def has_live_files(manifest: Any) -> bool:
    """Check whether a Java ``ManifestFile`` lists live files."""
    return bool(manifest.hasAddedFiles() or manifest.hasExistingFiles())


def spec_columns(table: IcebergTable, spec_id: int) -> list[str]:
    """Return the source columns of a partition spec; a dropped one by its field id."""
    schema, spec = table.java.schema(), table.java.specs().get(spec_id)
    return [schema.findColumnName(field_id) or f"dropped column {field_id}" for field_id, _ in _fields(spec)]


def unpartitioned_specs(table: IcebergTable) -> frozenset[int]:
    """Return the ids of the specs without partitions, whose equality deletes apply to the whole table."""
    specs = mapping(table.java.specs())
    return frozenset(int(spec_id) for spec_id, spec in specs.items() if spec.isUnpartitioned())


def current_spec_id(table: IcebergTable) -> int:
    """Return the id of the spec for new files."""
    return int(table.java.spec().specId())


def has_several_specs(table: IcebergTable) -> bool:
    """Check whether the table has, or had, more than one partition spec."""
    return int(table.java.specs().size()) > 1


def partition_expressions(table: IcebergTable, spec_id: int) -> list[str]:
    """Return a spec's transforms as Spark SQL over the table's columns, to cluster rows before a write."""
    return [transformed(table, *field) for field in _fields(table.java.specs().get(spec_id))]


def transformed(table: IcebergTable, source_id: int, transform: str) -> str:
    """Return a partition value as Spark SQL over the table's columns, by Iceberg's text such as ``bucket[16]``."""
    column = column_path(table, str(table.java.schema().findColumnName(source_id)))
    return apply_transform(table.catalog, transform, column)


def apply_transform(catalog: str, transform: str, value: str) -> str:
    """Return a transform of a value as Spark SQL; see :func:`transformed`."""
    return value if transform == "identity" else f"{quoted(catalog)}.system.{_call(transform, value)}"


def partitioning(table: IcebergTable) -> list[str]:
    """Return the current partition spec as transforms in SQL, to create another table like it."""
    schema, fields = table.java.schema(), _fields(table.java.spec())
    columns = [(column_path(table, str(schema.findColumnName(source_id))), how) for source_id, how in fields]
    return [column if how == "identity" else _call(how, column) for column, how in columns]


def spec_fields(spec: Any) -> list[tuple[Any, str]]:
    """Return the fields of a Java ``PartitionSpec`` with their transforms, without fields that are always null."""
    fields = [(field, str(field.transform().toString())) for field in listed(spec.fields())]
    return [(field, transform) for field, transform in fields if transform != "void"]


def _fields(spec: Any) -> list[tuple[int, str]]:
    return [(int(field.sourceId()), transform) for field, transform in spec_fields(spec)]


def _call(transform: str, column: str) -> str:
    """Return a transform of Iceberg, such as ``bucket[16]``, as a function of Spark SQL."""
    function, _, argument = transform.partition("[")
    arguments = f"{argument.rstrip(']')}, " if argument else ""
    name = {"year": "years", "month": "months", "day": "days", "hour": "hours"}.get(function, function)
    return f"{name}({arguments}{column})"


def own_columns() -> list[tuple[str, str, bool]]:
    """Return lakecdc's own columns: order key and source time of a row's last change."""
    return [(ORDER_COLUMN, "string", False), (TIME_COLUMN, "timestamp", False)]


def refuse_merged(table: IcebergTable, what: str) -> None:
    """Raise an InputError for a table whose rows are merged from several events.

    :param what: why the job cannot work on it.
    """
    if {names.MERGE, names.AGGREGATED} & {*table.properties}:
        raise InputError(
            f"Its rows are merged from several events (the setting merge of its target): {what}.",
            table=table.name,
            hint="Exclude the table, or read one of its own snapshots.",
        )


def refuse_several_feeds(table: IcebergTable, what: str) -> None:
    """Raise an InputError for a table that several jobs feed, each with its own order keys and position.

    :param what: why the job cannot work on it.
    """
    carrier = carrier_of(table.ancestors())
    if carrier is not None and carrier.position.others:
        raise InputError(
            f"Several jobs feed it: {what}.",
            table=table.name,
            hint="Leave the table out, or change the rows at their sources.",
        )


def refuse_aggregated(table: IcebergTable, hint: str) -> None:
    """Raise an InputError for an aggregated table: its rows follow from its history table and cannot be removed."""
    if text := table.properties.get(names.AGGREGATED):
        raise InputError(
            f"Its rows are aggregated from the history table {json.loads(text)['history']}.",
            table=table.name,
            hint=hint,
        )


def merge_of(table: IcebergTable) -> Merge | None:
    """Return the rules by which the table's rows are merged from several events; None if each is its last event."""
    text = table.properties.get(names.MERGE)
    return fields.parse(Merge, json.loads(text), names.MERGE) if text else None


def source_types(table: IcebergTable) -> dict[str, str]:
    """Return the Spark SQL types of a table's source columns."""
    return {name: kind for name, kind in spark_types(table).items() if not is_own_column(name)}


def _needs_change(table: IcebergTable, name: str, present: Any, target_type: Any) -> bool:
    """Check whether the column must be widened; a source type that fits changes nothing."""
    old, new = sql_type(present), sql_type(target_type)
    if is_wider(old, new):
        return True
    if is_wider(new, old) or old == "string" or (old.startswith("decimal") and new in ("int", "bigint")):
        return False
    raise no_change(table.name, name, old, new)


def _iceberg_type(table: IcebergTable, spark_type: Any) -> Any:
    view = jvm(table.spark)
    java_type = view.org.apache.spark.sql.types.DataType.fromJson(spark_type.json())
    converted = view.org.apache.iceberg.spark.SparkSchemaUtil.convert(java_type)
    # a struct comes back as a schema
    return converted.asStruct() if spark_type.typeName() == "struct" else converted
