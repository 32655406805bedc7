"""What a snapshot's scan has to read: equality deletes, the data files they touch, and tasks rebuilt by choice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from lakecdc.iceberg.jvm import gateway, iterate, jvm

if TYPE_CHECKING:
    from lakecdc.iceberg.table import IcebergTable


@dataclass(frozen=True)
class EqualityDelete:
    """A live equality-delete file.

    :param java: Iceberg's ``DeleteFile``.
    :param scope: number of the (spec, partition) it reaches; None if it is global (specification, "Scan Planning").
    :param sequence_number: data sequence number; it reaches data files with a smaller one.
    :param records: rows, that is keys.
    :param field_ids: the equality field ids, in ascending order.
    """

    java: Any
    location: str
    scope: int | None
    sequence_number: int
    records: int
    field_ids: tuple[int, ...]


@dataclass(frozen=True)
class FileTask:
    """A data file that equality deletes apply to.

    :param number: short name of the file in data frames.
    :param java: Iceberg's ``DataFile``.
    :param scope: number of its (spec, partition).
    :param sequence_number: data sequence number.
    :param records: rows, deleted ones included.
    :param equality: Java list of the equality deletes that apply.
    :param others: Java list of the position deletes and deletion vectors that apply.
    """

    number: int
    java: Any
    location: str
    scope: int
    sequence_number: int
    records: int
    equality: Any
    others: Any


class Scopes:
    """Small numbers for (spec id, partition tuple), by Iceberg's own comparison of partition values."""

    def __init__(self, table: IcebergTable) -> None:
        self._specs, self._view = table.java.specs(), jvm(table.spark)
        self._wrappers: dict[int, Any] = {}
        self._numbers: dict[tuple[int, Any], int] = {}

    def number(self, file: Any) -> int:
        """Number of a Java content file's scope; the same scope always gets the same number."""
        spec_id = int(file.specId())
        # py4j hashes and compares Java objects by their own hashCode and equals
        key = (spec_id, self._wrapper(spec_id).copyFor(file.partition()))
        return self._numbers.setdefault(key, len(self._numbers))

    def reached_by(self, delete: Any) -> int | None:
        """Number of the scope an equality delete reaches; None for the whole table."""
        return None if self._specs.get(delete.specId()).isUnpartitioned() else self.number(delete)

    def _wrapper(self, spec_id: int) -> Any:
        if spec_id not in self._wrappers:
            kind = self._specs.get(spec_id).partitionType()
            self._wrappers[spec_id] = self._view.org.apache.iceberg.util.StructLikeWrapper.forType(kind)
        return self._wrappers[spec_id]


def equality_deletes(table: IcebergTable, snapshot_id: int, scopes: Scopes) -> list[EqualityDelete]:
    """Every live equality-delete file of a snapshot, from its delete manifests, those that apply to nothing included.

    Costs about ten py4j calls per equality-delete file, 1 ms.
    """
    view = jvm(table.spark)
    manifests = table.java.snapshot(snapshot_id).deleteManifests(table.java.io())
    found = []
    for manifest in manifests:
        reader = view.org.apache.iceberg.ManifestFiles.readDeleteManifest(manifest, table.java.io(), table.java.specs())
        found += [_equality_delete(file, scopes) for file in iterate(reader) if _is_equality(file)]
    return found


def tasks_reached(
    table: IcebergTable, snapshot_id: int, deletes: Iterable[EqualityDelete], scopes: Scopes
) -> Iterator[FileTask]:
    """The data files that at least one of the equality deletes applies to, as Iceberg's scan planning pairs them.

    Costs four py4j calls per data file of the table and twenty per file reached, however many deletes apply:
    a table of 100,000 data files takes about a minute.
    """
    view = jvm(table.spark)
    wanted = _java_set(table, deletes)
    number = 0
    scan = table.java.newScan().useSnapshot(snapshot_id).ignoreResiduals()
    for task in iterate(scan.planFiles()):
        applying = task.deletes()
        if applying.isEmpty():
            continue
        equality, others = view.java.util.ArrayList(applying), view.java.util.ArrayList(applying)
        equality.retainAll(wanted)
        if equality.isEmpty():
            continue
        others.removeAll(wanted)
        file = task.file()
        yield FileTask(
            number,
            file,
            str(file.location()),
            scopes.number(file),
            int(file.dataSequenceNumber()),
            int(file.recordCount()),
            equality,
            others,
        )
        number += 1


class TaskBuilder:
    """Makes scan tasks with chosen delete files, for :func:`lakecdc.iceberg.staging.staged_tasks`."""

    def __init__(self, table: IcebergTable) -> None:
        view = self._view = jvm(table.spark)
        self._table, self._gateway = table, gateway(table.spark)
        self._schema = view.org.apache.iceberg.SchemaParser.toJson(table.java.schema())
        always = view.org.apache.iceberg.expressions.Expressions.alwaysTrue()
        self._residuals = view.org.apache.iceberg.expressions.ResidualEvaluator.unpartitioned(always)
        self._specs: dict[int, str] = {}

    def task(self, data_file: Any, deletes: Iterable[Any] = ()) -> Any:
        """A task that reads a data file as if only these delete files applied.

        :param data_file: Java ``DataFile``.
        :param deletes: Java ``DeleteFile`` objects, committed or not.
        """
        chosen = list(deletes)
        array = self._gateway.new_array(self._view.org.apache.iceberg.DeleteFile, len(chosen))
        for index, delete in enumerate(chosen):
            array[index] = delete
        return self._view.org.apache.iceberg.BaseFileScanTask(
            data_file, array, self._schema, self._spec(data_file.specId()), self._residuals
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


def only_deletes_of(table: IcebergTable, tasks: Iterable[FileTask], deletes: Iterable[EqualityDelete]) -> bool:
    """Tell whether every equality delete that applies to the tasks is one of ``deletes``."""
    wanted = _java_set(table, deletes)
    return all(wanted.containsAll(task.equality) for task in tasks)


def with_deletes_of(
    table: IcebergTable, tasks: Iterable[FileTask], deletes: Iterable[EqualityDelete]
) -> list[FileTask]:
    """Those tasks that at least one of ``deletes`` applies to."""
    wanted, collections = _java_set(table, deletes), jvm(table.spark).java.util.Collections
    return [task for task in tasks if not collections.disjoint(task.equality, wanted)]


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


def file_scoped(table: IcebergTable, deletes: Iterable[Any]) -> list[Any]:
    """Those position-delete files and deletion vectors that name positions of one data file only."""
    util = jvm(table.spark).org.apache.iceberg.util.ContentFileUtil
    return [delete for delete in deletes if util.isFileScoped(delete)]


def column_names(table: IcebergTable, field_ids: Sequence[int]) -> list[str] | None:
    """Current names of top-level columns; None if one of them is no longer, or not at the top of, the schema."""
    names = {field.id: field.name for field in table.fields}
    return [names[i] for i in field_ids] if all(i in names for i in field_ids) else None


def field_types(table: IcebergTable, field_ids: Iterable[int]) -> dict[int, str | None]:
    """Iceberg type of each field in the newest schema that has it; None for a field that is not a top-level column."""
    schemas = sorted(table.java.schemas().items(), key=lambda item: int(item[0]))
    known: dict[int, str] = {}
    for _, schema in [*schemas, (None, table.java.schema())]:
        known |= {int(c.fieldId()): str(c.type().toString()) for c in schema.columns()}
    return {field_id: known.get(field_id) for field_id in field_ids}


def _java_set(table: IcebergTable, deletes: Iterable[EqualityDelete]) -> Any:
    """Iceberg's set of delete files, which compares them by location and content."""
    found = jvm(table.spark).org.apache.iceberg.util.DeleteFileSet.create()
    for delete in deletes:
        found.add(delete.java)
    return found


def _is_equality(file: Any) -> bool:
    return str(file.content().toString()) == "EQUALITY_DELETES"


def _equality_delete(file: Any, scopes: Scopes) -> EqualityDelete:
    return EqualityDelete(
        file,
        str(file.location()),
        scopes.reached_by(file),
        int(file.dataSequenceNumber()),
        int(file.recordCount()),
        tuple(sorted(int(i) for i in file.equalityFieldIds())),
    )
