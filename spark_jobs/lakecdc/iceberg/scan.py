"""Scan tasks with chosen deletes, their reading by Spark, and the limits of Iceberg's readers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

from pyspark.sql import DataFrame

from lakecdc.iceberg.bulk import GUAVA, JavaFunction, java_calls
from lakecdc.iceberg.definition import live_spec_ids
from lakecdc.iceberg.forwarding import OBJECT
from lakecdc.iceberg.jvm import java_class, java_list, jvm, listed, mapping
from lakecdc.iceberg.partition_fields import identity_columns
from lakecdc.iceberg.table import IcebergTable


def scan_tasks(table: IcebergTable, snapshot_id: int) -> Any:
    """Return a Java list of the scan tasks of all data files of a snapshot, each with its deletes."""
    tasks = jvm(table.spark).java.util.ArrayList()
    for part in java_calls(table.spark).parts(
        table.java.newScan().useSnapshot(snapshot_id).ignoreResiduals().planFiles()
    ):
        tasks.addAll(part)
    return tasks


class TaskBuilder:
    """Builder of scan tasks with chosen delete files, for :func:`lakecdc.iceberg.staging.staged_tasks`."""

    def __init__(self, table: IcebergTable) -> None:
        view = self._view = jvm(table.spark)
        self._table = table
        self._iterables = view.org.apache.iceberg.relocated.com.google.common.collect.Iterables
        self._delete_file_class = java_class(table.spark, "org.apache.iceberg.DeleteFile")
        self._schema = view.org.apache.iceberg.SchemaParser.toJson(table.java.schema())
        always = view.org.apache.iceberg.expressions.Expressions.alwaysTrue()
        self._residuals = view.org.apache.iceberg.expressions.ResidualEvaluator.unpartitioned(always)
        self._specs: dict[int, str] = {}

    def task(self, data_file: Any, deletes: Iterable[Any] = (), spec: str | None = None) -> Any:
        """Build a task that reads a Java ``DataFile`` as if only these delete files applied, committed or not.

        :param spec: its partition spec as JSON; default: the table's of its id.
        """
        # copied in the JVM: one call, however many deletes apply
        array = self._iterables.toArray(java_list(self._table.spark, deletes), self._delete_file_class)
        return self._view.org.apache.iceberg.BaseFileScanTask(
            data_file, array, self._schema, spec or self._spec(data_file.specId()), self._residuals
        )

    def with_deletes(self, deletes: Any) -> JavaFunction:
        """Return a function that rebuilds a scan task with the deletes that a function returns for it, or a list."""
        calls, view = java_calls(self._table.spark), self._view
        specs = view.java.util.HashMap()
        for spec_id in listed(self._table.java.specs().keySet()):
            specs.put(spec_id, self._spec(spec_id))
        spec_of = calls.method("java.util.Map", "get", OBJECT)
        array_of = calls.method(f"{GUAVA}.collect.Iterables", "toArray", "java.lang.Iterable", "java.lang.Class")
        return calls.constructor("org.apache.iceberg.BaseFileScanTask")(
            calls.file,
            array_of(deletes, self._delete_file_class),
            self._schema,
            spec_of(specs, *calls.content(calls.file, "specId")),
            self._residuals,
        )

    def keys_of(self, delete_file: Any) -> Any:
        """Build a task that reads an equality-delete file like a data file, but no value from its partition."""
        apache = self._view.org.apache.iceberg
        nowhere = apache.PartitionSpec.unpartitioned()
        builder = (
            apache.DataFiles.builder(nowhere)
            .withPath(delete_file.location())
            .withFormat(delete_file.format().toString())
            .withFileSizeInBytes(delete_file.fileSizeInBytes())
            .withRecordCount(delete_file.recordCount())
        )
        return self.task(builder.build(), spec=str(apache.PartitionSpecParser.toJson(nowhere)))

    def _spec(self, spec_id: int) -> str:
        if spec_id not in self._specs:
            spec = self._table.java.specs().get(spec_id)
            self._specs[spec_id] = str(self._view.org.apache.iceberg.PartitionSpecParser.toJson(spec))
        return self._specs[spec_id]


def read_staged(table: IcebergTable, group: str) -> DataFrame:
    """Read rows of staged tasks, with the metadata columns ``_file``, ``_pos`` and ``_deleted`` available."""
    rows = table.spark.read.format("iceberg").load(group)
    relation = rows._jdf.queryExecution().analyzed()
    columns = relation.output()
    lineage = sum(columns.apply(i).metadata().contains("__metadata_col") for i in range(columns.size()))
    if not lineage:
        return rows
    # In v3 a staged table exposes the lineage columns as data, for rewrites to carry them along, and Spark offers no
    # other metadata column beside them. They are the last ones: without them the relation offers all.
    elements = [relation.productElement(i) for i in range(relation.productArity())]
    elements[1] = columns.dropRight(lineage)
    dataset = jvm(table.spark).org.apache.spark.sql.classic.Dataset
    return DataFrame(dataset.ofRows(table.spark._jsparkSession, relation.copy(*elements)), table.spark)


def columns_ever(table: IcebergTable, field_ids: Collection[int]) -> dict[int, dict[str, Any]]:
    """Return top-level columns as Iceberg's JSON has them, by field id, each from the newest schema that has it."""
    known = {column["id"]: column for column in table.schema_fields}
    if not known.keys() >= set(field_ids):
        to_json = jvm(table.spark).org.apache.iceberg.SchemaParser.toJson
        for _, schema in sorted(mapping(table.java.schemas()).items(), key=lambda item: -int(item[0])):
            known = {column["id"]: column for column in json.loads(to_json(schema))["fields"]} | known
    return {field_id: known[field_id] for field_id in field_ids if field_id in known}


def field_types(table: IcebergTable, field_ids: Collection[int]) -> dict[int, str | None]:
    """Return the Iceberg type of each field, or its kind if it is nested; None for one that is not a top-level column.

    A column that was dropped has the type of the newest schema with it.
    """
    types = {number: column["type"] for number, column in columns_ever(table, field_ids).items()}
    plain = {number: kind if isinstance(kind, str) else kind["type"] for number, kind in types.items()}
    return {field_id: plain.get(field_id) for field_id in field_ids}


def dropped_beyond_readers(table: IcebergTable, field_ids: Collection[int]) -> dict[int, str]:
    """Return dropped key columns that Iceberg's readers (1.12) fail on: field id to problem."""
    now = {field.id: field.name for field in table.fields}
    if now.keys() >= set(field_ids):
        return {}
    past = {field_id: str(column["name"]) for field_id, column in columns_ever(table, field_ids).items()}
    names = Counter(now.get(field_id, past.get(field_id)) for field_id in field_ids)
    partitioned, problems = identity_columns(table), {}
    for field_id in sorted(set(field_ids) - now.keys()):
        if field_id in partitioned:
            problems[field_id] = "a partition column"
        elif field_id in past and names[past[field_id]] > 1:
            problems[field_id] = "a namesake of another key column"
    return problems


def specs_by_dropped_columns(table: IcebergTable) -> frozenset[int]:
    """Return the ids of partition specs by the values of a column that was dropped.

    Iceberg 1.12 does not know the type of their partition values and writes them as nulls, so a file that it enters or
    moves to another manifest seems to belong to another partition. For transforms with their own type, such as buckets,
    it does know it.
    """
    return frozenset(
        int(spec.specId())
        for spec in mapping(table.java.specs()).values()
        for field, value in zip(listed(spec.fields()), listed(spec.partitionType().fields()), strict=True)
        if str(value.type().typeId().toString()) == "UNKNOWN" and str(field.transform().toString()) != "void"
    )


def specs_losing_partitions(table: IcebergTable, snapshot_id: int) -> frozenset[int]:
    """Return the specs among these with data files in a snapshot; see :func:`specs_by_dropped_columns`."""
    lost = specs_by_dropped_columns(table)
    return lost & live_spec_ids(table, table.java.snapshot(snapshot_id)) if lost else lost
