"""Scan tasks with deletes of one's choice, what Spark reads of them, and what Iceberg's readers can't read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from lakecdc.iceberg.bulk import CONTENT_FILE, FILE_SCAN_TASK, GUAVA, OBJECT, java_calls
from lakecdc.iceberg.jvm import java_class, java_list, jvm, listed, mapping

if TYPE_CHECKING:
    from lakecdc.iceberg.bulk import JavaFunction
    from lakecdc.iceberg.table import IcebergTable

_UNREADABLE = ("TIME", "TIMESTAMP_NANO")


class TaskBuilder:
    """Makes scan tasks with chosen delete files, for :func:`lakecdc.iceberg.staging.staged_tasks`."""

    def __init__(self, table: IcebergTable) -> None:
        view = self._view = jvm(table.spark)
        self._table = table
        self._iterables = view.org.apache.iceberg.relocated.com.google.common.collect.Iterables
        self._delete_file_class = java_class(table.spark, "org.apache.iceberg.DeleteFile")
        self._schema = view.org.apache.iceberg.SchemaParser.toJson(table.java.schema())
        always = view.org.apache.iceberg.expressions.Expressions.alwaysTrue()
        self._residuals = view.org.apache.iceberg.expressions.ResidualEvaluator.unpartitioned(always)
        self._specs: dict[int, str] = {}

    def task(self, data_file: Any, deletes: Iterable[Any] = ()) -> Any:
        """A task that reads a data file as if only these delete files applied.

        :param data_file: Java ``DataFile``.
        :param deletes: Java ``DeleteFile`` objects, committed or not; or a Java collection of them.
        """
        # copied in the JVM: one call, however many deletes apply
        array = self._iterables.toArray(java_list(self._table.spark, deletes), self._delete_file_class)
        return self._view.org.apache.iceberg.BaseFileScanTask(
            data_file, array, self._schema, self._spec(data_file.specId()), self._residuals
        )

    def with_deletes(self, deletes: JavaFunction | None = None) -> JavaFunction:
        """What makes of a scan task one that reads the same data file with other deletes.

        :param deletes: makes of the task a Java ``Iterable`` of ``DeleteFile``; default: none.
        """
        calls, view = java_calls(self._table.spark), self._view
        specs = view.java.util.HashMap()
        for spec_id in listed(self._table.java.specs().keySet()):
            specs.put(spec_id, self._spec(spec_id))
        file = calls.method(FILE_SCAN_TASK, "file")(calls.it)
        spec_of = calls.method("java.util.Map", "get", OBJECT)
        array_of = calls.method(f"{GUAVA}.collect.Iterables", "toArray", "java.lang.Iterable", "java.lang.Class")
        return calls.constructor("org.apache.iceberg.BaseFileScanTask")(
            file,
            array_of(view.java.util.ArrayList() if deletes is None else deletes, self._delete_file_class),
            self._schema,
            spec_of(specs, calls.method(CONTENT_FILE, "specId")(file)),
            self._residuals,
        )

    def keys_of(self, delete_file: Any) -> Any:
        """A task that reads an equality-delete file as if it were a data file, by field id and with its partition."""
        builder = (
            self._view.org.apache.iceberg.DataFiles.builder(self._table.java.specs().get(delete_file.specId()))
            .withPath(delete_file.location())
            .withFormat(delete_file.format().toString())
            .withFileSizeInBytes(delete_file.fileSizeInBytes())
            .withRecordCount(delete_file.recordCount())
        )
        if delete_file.partition().size():
            builder = builder.withPartition(delete_file.partition())
        return self.task(builder.build())

    def _spec(self, spec_id: int) -> str:
        if spec_id not in self._specs:
            spec = self._table.java.specs().get(spec_id)
            self._specs[spec_id] = str(self._view.org.apache.iceberg.PartitionSpecParser.toJson(spec))
        return self._specs[spec_id]


def read_staged(table: IcebergTable, group: str) -> DataFrame:
    """Rows of staged tasks, with the metadata columns ``_file``, ``_pos`` and ``_deleted`` to choose from.

    :param group: from :func:`lakecdc.iceberg.staging.staged_tasks`.
    """
    rows = table.spark.read.format("iceberg").load(group)
    relation = rows._jdf.queryExecution().analyzed()
    columns = relation.output()
    lineage = sum(columns.apply(i).metadata().contains("__metadata_col") for i in range(columns.size()))
    if not lineage:
        return rows
    # In v3 a staged table shows the lineage columns as data, for rewrites to carry them along, and Spark offers no
    # other metadata column beside them. They are the last ones: without them the relation offers all.
    elements = [relation.productElement(i) for i in range(relation.productArity())]
    elements[1] = columns.dropRight(lineage)
    dataset = jvm(table.spark).org.apache.spark.sql.classic.Dataset
    return DataFrame(dataset.ofRows(table.spark._jsparkSession, relation.copy(*elements)), table.spark)


def column_names(table: IcebergTable, field_ids: Sequence[int]) -> list[str] | None:
    """Current names of top-level columns; None if one of them is no longer, or not at the top of, the schema."""
    names = {field.id: field.name for field in table.fields}
    return [names[i] for i in field_ids] if all(i in names for i in field_ids) else None


def field_types(table: IcebergTable, field_ids: Iterable[int]) -> dict[int, str | None]:
    """Iceberg type of each field in the newest schema that has it; None for a field that is not a top-level column."""
    known = _columns_ever(table)
    return {i: str(known[i].type().toString()) if i in known else None for i in field_ids}


def _columns_ever(table: IcebergTable) -> dict[int, Any]:
    """Java top-level columns by field id, each of the newest schema that has it."""
    schemas = sorted(mapping(table.java.schemas()).items(), key=lambda item: int(item[0]))
    newest_last = [*(schema for _, schema in schemas), table.java.schema()]
    return {int(column.fieldId()): column for schema in newest_last for column in listed(schema.columns())}


def dropped_beyond_readers(table: IcebergTable, field_ids: Collection[int]) -> dict[int, str]:
    """Dropped key columns that Iceberg's readers (1.12) fail on: field id to what is the matter."""
    now = {field.id: field.name for field in table.fields}
    if now.keys() >= set(field_ids):
        return {}
    past = {field_id: str(column.name()) for field_id, column in _columns_ever(table).items()}
    names = Counter(now.get(field_id, past.get(field_id)) for field_id in field_ids)
    partitioned = {
        int(field.sourceId())
        for spec in mapping(table.java.specs()).values()
        for field in listed(spec.fields())
        if field.transform().isIdentity()
    }
    found = {}
    for field_id in sorted(set(field_ids) - now.keys()):
        if field_id in partitioned:
            found[field_id] = "a partition column"
        elif field_id in past and names[past[field_id]] > 1:
            found[field_id] = "a namesake of another key column"
    return found


def specs_by_dropped_columns(table: IcebergTable) -> frozenset[int]:
    """Ids of the partition specs by the values of a column that the schema has no more.

    Iceberg 1.12 knows no type for their partition values and writes them as nulls, so that a file it enters or moves
    to another manifest seems to be of another partition than the one it belongs to. Of transforms with a type of their
    own, such as buckets, it knows it.
    """
    return frozenset(
        int(spec.specId())
        for spec in mapping(table.java.specs()).values()
        for field, value in zip(listed(spec.fields()), listed(spec.partitionType().fields()), strict=True)
        if str(value.type().typeId().toString()) == "UNKNOWN" and str(field.transform().toString()) != "void"
    )


def specs_losing_partitions(table: IcebergTable, snapshot_id: int) -> frozenset[int]:
    """Those of them that have data files in a snapshot."""
    lost = specs_by_dropped_columns(table)
    if not lost:
        return lost
    manifests = listed(table.java.snapshot(snapshot_id).dataManifests(table.java.io()))
    return lost & {int(m.partitionSpecId()) for m in manifests if m.hasAddedFiles() or m.hasExistingFiles()}


def unreadable_types(table: IcebergTable) -> dict[str, str]:
    """Columns of types that Spark does not have, nested ones included: name to type."""
    schema = table.java.schema()
    fields = jvm(table.spark).org.apache.iceberg.types.TypeUtil.indexById(schema.asStruct())
    types = {str(schema.findColumnName(number)): fields.get(number).type() for number in listed(fields.keySet())}
    return {name: str(kind.toString()) for name, kind in types.items() if str(kind.typeId().toString()) in _UNREADABLE}
