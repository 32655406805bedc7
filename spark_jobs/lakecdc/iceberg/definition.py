"""Making and changing table definitions: creation, added and widened columns, the view, live partition specs."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lakecdc.contract.errors import InputError
from lakecdc.contract.target import ORDER_COLUMN, TIME_COLUMN
from lakecdc.iceberg.jvm import java_message, jvm, listed, mapping
from lakecdc.iceberg.table import IcebergTable, exists
from lakecdc.iceberg.widening import is_wider, no_change
from lakecdc.sql import literal, parsed_type, quoted, quoted_column, sql_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


log = logging.getLogger(__name__)

_SIDE_TABLE = {"format-version": "2", "commit.retry.num-retries": "20"}
#: property of a table of few rows, which a deletion is to leave without delete files
COPY_ON_WRITE = {"write.delete.mode": "copy-on-write"}


def spark_types(table: IcebergTable) -> dict[str, str]:
    """Spark SQL types of a table's columns, as they were when it was loaded or refreshed."""
    from pyspark.sql.types import StructType

    found = jvm(table.spark).org.apache.iceberg.spark.SparkSchemaUtil.convert(table.java.schema())
    return {f.name: sql_type(f.dataType) for f in StructType.fromJson(json.loads(found.json())).fields}


def create_side_table(
    spark: SparkSession,
    catalog: str,
    name: str,
    columns: Sequence[tuple[str, str, bool]],
    *,
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
) -> IcebergTable:
    """Create a table that ingestion keeps beside its targets: without a key, and open to several writers at once.

    :param columns: name, Spark SQL type, NOT NULL.
    :param partition_by: transforms in SQL.
    :param properties: further ones.
    :raises InputError: if Iceberg refuses the definition.
    """
    settings = {**_SIDE_TABLE, **(properties or {})}
    return create_table(spark, catalog, name, columns, partition_by=partition_by, properties=settings, identifier=())


def create_table(
    spark: SparkSession,
    catalog: str,
    name: str,
    columns: Sequence[tuple[str, str, bool]],
    *,
    partition_by: Sequence[str],
    properties: Mapping[str, str],
    identifier: Sequence[str],
) -> IcebergTable:
    """Create a table with identifier fields.

    :param columns: name, Spark SQL type, NOT NULL.
    :param partition_by: transforms in SQL.
    :param identifier: the key columns, NOT NULL; may be empty.
    :raises InputError: if Iceberg refuses the definition.
    """
    _make_namespace(spark, f"{quoted(catalog)}.{quoted(name.rpartition('.')[0])}")
    types = {column: sql_type(parsed_type(kind)) for column, kind, _ in columns}
    definitions = ", ".join(f"{quoted_column(c)} {types[c]}{' NOT NULL' * required}" for c, _, required in columns)
    partitioned = f" PARTITIONED BY ({', '.join(partition_by)})" if partition_by else ""
    settings = ", ".join(f"{literal(k)}={literal(v)}" for k, v in properties.items())
    sql_name = f"{quoted(catalog)}.{quoted(name)}"
    try:
        spark.sql(f"CREATE TABLE {sql_name} ({definitions}) USING iceberg{partitioned} TBLPROPERTIES ({settings})")
    except Exception as error:
        # an answer that was lost: a new table is this one, or another run's, whose definition is the same
        if not (exists(spark, catalog, name) and IcebergTable(spark, catalog, name).head() is None):
            raise InputError(
                f"The table cannot be created: {java_message(error)}",
                table=name,
                hint="Check partition_by, columns and properties of its target.",
            ) from error
    table = IcebergTable(spark, catalog, name)
    if identifier:
        update = table.java.updateSchema()
        update.setIdentifierFields(_string_set(spark, identifier))
        update.commit()
    return table.refresh()


def _make_namespace(spark: SparkSession, sql_name: str) -> None:
    statement = f"CREATE NAMESPACE IF NOT EXISTS {sql_name}"
    try:
        spark.sql(statement)
    except Exception as error:
        # a catalog that looks first and creates then fails if another writer comes in between; now there is one
        log.info("%s: once more, because %s", sql_name, java_message(error))
        spark.sql(statement)


def order_by(table: IcebergTable, columns: Sequence[str]) -> None:
    """Set the table's sort order, which writers keep within a file and ``sort_data_files`` across files."""
    listed = ", ".join(quoted_column(column) for column in columns)
    table.spark.sql(f"ALTER TABLE {table.sql_name} WRITE LOCALLY ORDERED BY {listed}")
    table.refresh()


def make_view(table: IcebergTable, hidden: Sequence[str], suffix: str = "_view") -> None:
    """Create or replace the view ``<table>_view`` without lakecdc's own columns, where the catalog can hold views."""
    columns = ", ".join(quoted_column(c) for c in table.column_names if c not in hidden)
    view = f"{quoted(table.catalog)}.{quoted(table.name + suffix)}"
    try:
        table.spark.sql(f"CREATE OR REPLACE VIEW {view} AS SELECT {columns} FROM {table.sql_name}")
    except Exception as error:
        log.warning("%s: no view %s%s: %s", table.name, table.name, suffix, java_message(error))


def evolve(table: IcebergTable, columns: Sequence[tuple[str, str]]) -> list[str]:
    """Add columns the table lacks and widen types where Iceberg allows it, in one schema commit.

    :param columns: name and Spark SQL type as the source has them now.
    :return: what was changed, for the report.
    :raises InputError: for a type the column cannot be changed to, or a new name that differs from a column's in case
        alone; nothing is changed then.
    """
    present = {f.name: (f.dataType, f) for f in table.spark.table(table.sql_name).schema.fields}
    update, done = table.java.updateSchema(), []
    lowered = {name.lower(): name for name in present}
    for name, kind in columns:
        wanted = parsed_type(kind)
        if name not in present:
            _check_case(table, name, lowered)
            update.addColumn(name, _iceberg_type(table, wanted))
            done.append(f"added {name} {kind}")
        elif present[name][0] != wanted and _needs_change(table, name, present[name][0], wanted):
            update.updateColumn(name, _iceberg_type(table, wanted).asPrimitiveType())
            done.append(f"widened {name} from {sql_type(present[name][0])} to {kind}")
    if done:
        update.commit()
        table.refresh()
    return done


def _check_case(table: IcebergTable, name: str, lowered: Mapping[str, str]) -> None:
    """Refuse a new column that Spark could not tell from one of the table's."""
    if name.lower() in lowered:
        raise InputError(
            f"The source's column {name!r} differs from the table's {lowered[name.lower()]!r} in case alone.",
            table=table.name,
            hint="Leave it out by exclude_columns, give it another name by clean.rename, or rename the table's column.",
        )


def rename_columns(table: IcebergTable, names: Mapping[str, str], properties: Mapping[str, str]) -> None:
    """Rename columns and set properties in one commit; columns keep their field ids and may change places.

    :param names: the new name by the old one.
    """
    transaction = table.java.newTransaction()
    update = transaction.updateSchema()
    for old, new in names.items():
        update.renameColumn(old, new)
    # Iceberg follows them one by one, and loses some where names change places
    update.setIdentifierFields(_string_set(table.spark, [names.get(c, c) for c in table.identifier_columns]))
    update.commit()
    if properties:
        noted = transaction.updateProperties()
        for key, value in properties.items():
            noted.set(key, value)
        noted.commit()
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
    """A column's full name as SQL; where no column has it, it is that of a member of a struct."""
    return quoted_column(name) if name in table.column_names else quoted(name)


def live_specs(table: IcebergTable) -> dict[int, list[str]]:
    """Partition specs that live data files may have, each with the columns it derives from.

    From the manifest list alone, so that the cost does not grow with the table.
    """
    head = table.java.currentSnapshot()
    return {spec_id: spec_columns(table, spec_id) for spec_id in sorted(live_spec_ids(table, head))} if head else {}


def live_spec_ids(table: IcebergTable, snapshot: Any) -> set[int]:
    """Ids of the specs that live data files of a Java ``Snapshot`` may have."""
    manifests = listed(snapshot.dataManifests(table.java.io()))
    return {int(m.partitionSpecId()) for m in manifests if m.hasAddedFiles() or m.hasExistingFiles()}


def spec_columns(table: IcebergTable, spec_id: int) -> list[str]:
    """The source columns of a partition spec; one that the schema has no more by its field id."""
    schema, spec = table.java.schema(), table.java.specs().get(spec_id)
    ids = [f.sourceId() for f in listed(spec.fields()) if f.transform().toString() != "void"]
    return [schema.findColumnName(field_id) or f"dropped column {field_id}" for field_id in ids]


def unpartitioned_specs(table: IcebergTable) -> frozenset[int]:
    """Ids of the specs without partitions, whose equality deletes apply to the whole table."""
    specs = mapping(table.java.specs())
    return frozenset(int(spec_id) for spec_id, spec in specs.items() if spec.isUnpartitioned())


def current_spec_id(table: IcebergTable) -> int:
    """Id of the spec that new files get."""
    return int(table.java.spec().specId())


def has_several_specs(table: IcebergTable) -> bool:
    """Whether the table has, or had, more than one partition spec."""
    return int(table.java.specs().size()) > 1


def partition_expressions(table: IcebergTable, spec_id: int) -> list[str]:
    """A spec's transforms as Spark SQL over the table's columns, for clustering rows before a write."""
    fields = [(f.sourceId(), str(f.transform().toString())) for f in listed(table.java.specs().get(spec_id).fields())]
    return [transformed(table, source_id, transform) for source_id, transform in fields if transform != "void"]


def transformed(table: IcebergTable, source_id: int, transform: str) -> str:
    """A partition value as Spark SQL over the table's columns.

    :param source_id: field id of the column.
    :param transform: Iceberg's text of it, such as ``bucket[16]``.
    """
    column = column_path(table, str(table.java.schema().findColumnName(source_id)))
    return column if transform == "identity" else f"{quoted(table.catalog)}.system.{_call(transform, column)}"


def partitioning(table: IcebergTable) -> list[str]:
    """The current partition spec as transforms in SQL, for another table to be created like it."""
    fields = [(f.sourceId(), str(f.transform().toString())) for f in listed(table.java.spec().fields())]
    columns = [(column_path(table, str(table.java.schema().findColumnName(i))), how) for i, how in fields]
    return [column if how == "identity" else _call(how, column) for column, how in columns if how != "void"]


def _call(transform: str, column: str) -> str:
    """A transform as a function of Spark SQL.

    :param transform: Iceberg's text of it, such as ``bucket[16]``.
    """
    function, _, argument = transform.partition("[")
    arguments = f"{argument.rstrip(']')}, " if argument else ""
    name = {"year": "years", "month": "months", "day": "days", "hour": "hours"}.get(function, function)
    return f"{name}({arguments}{column})"


def own_columns() -> list[tuple[str, str, bool]]:
    """The columns lakecdc adds: the order key and the source time of a row's last change."""
    return [(ORDER_COLUMN, "string", False), (TIME_COLUMN, "timestamp", False)]


def source_types(table: IcebergTable) -> dict[str, str]:
    """Spark SQL types of the columns that a table has from its source."""
    own = {name for name, _, _ in own_columns()}
    return {name: kind for name, kind in spark_types(table).items() if name not in own}


def _needs_change(table: IcebergTable, name: str, present: Any, wanted: Any) -> bool:
    """Tell whether the column must be widened; a source type that fits into the column's is left alone."""
    old, new = sql_type(present), sql_type(wanted)
    if is_wider(old, new):
        return True
    if is_wider(new, old) or old == "string" or (old.startswith("decimal") and new in ("int", "bigint")):
        return False
    raise no_change(table.name, name, old, new)


def _iceberg_type(table: IcebergTable, spark_type: Any) -> Any:
    view = jvm(table.spark)
    java_type = view.org.apache.spark.sql.types.DataType.fromJson(spark_type.json())
    found = view.org.apache.iceberg.spark.SparkSchemaUtil.convert(java_type)
    # a struct comes back as a schema
    return found.asStruct() if spark_type.typeName() == "struct" else found


def _string_set(spark: SparkSession, values: Sequence[str]) -> Any:
    out = jvm(spark).java.util.TreeSet()
    for value in values:
        out.add(value)
    return out
