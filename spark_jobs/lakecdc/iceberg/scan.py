"""What a snapshot's scan has to read: data files with the deletes that apply, and tasks rebuilt by choice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from lakecdc.iceberg.jvm import iterate, java_class, java_list, jvm, listed, mapping
from lakecdc.iceberg.live_deletes import delete_file_set, delete_key

if TYPE_CHECKING:
    from lakecdc.iceberg.live_deletes import EqualityDelete, PositionDelete, Scopes
    from lakecdc.iceberg.table import IcebergTable

#: pairs of data file and equality delete that are kept; every further one costs a reference in the driver
MAX_PAIRS = 2_000_000
_UNREADABLE = ("TIME", "TIMESTAMP_NANO")


@dataclass(frozen=True)
class FileTask:
    """A data file whose deletes are to be rewritten.

    :param number: short name of the file in data frames.
    :param java: Iceberg's ``DataFile``.
    :param planned: Iceberg's ``FileScanTask``, with every delete file that applies; None where the pairs of data and
        delete files are too many to be kept.
    :param scope: number of its (spec, partition).
    :param sequence_number: data sequence number.
    :param records: rows, deleted ones included.
    :param equality_deletes: how many equality deletes apply.
    :param others: Java list of the position deletes and deletion vectors that apply.
    :param astray: whether one of those equality deletes is of another scope; told where ``planned`` is not kept.
    """

    number: int
    java: Any
    planned: Any
    location: str
    scope: int
    sequence_number: int
    records: int
    equality_deletes: int
    others: Any
    astray: bool = False


def planned_tasks(
    table: IcebergTable,
    snapshot_id: int,
    equality: Iterable[EqualityDelete],
    positions: Iterable[PositionDelete],
    scopes: Scopes,
) -> Iterator[FileTask]:
    """The data files that at least one of the deletes applies to, as Iceberg's scan planning pairs them.

    Costs five py4j calls per data file of the table and twenty per file found, however many deletes apply:
    100,000 data files take about half a minute.
    """
    view = jvm(table.spark)
    equality_set, wanted = delete_file_set(table, equality), delete_file_set(table, [*equality, *positions])
    mispaired, builder, reaching = _mispaired(table, equality), TaskBuilder(table), _Reaching(table, equality)
    number = pairs = 0
    for planned in iterate(table.java.newScan().useSnapshot(snapshot_id).ignoreResiduals().planFiles()):
        if mispaired:
            planned = _repaired(builder, planned, mispaired, scopes)
        applying = planned.deletes()
        if applying.isEmpty() or view.java.util.Collections.disjoint(wanted, applying):
            continue
        others = view.java.util.ArrayList(applying)
        others.removeAll(equality_set)
        file, equality_deletes = planned.file(), applying.size() - others.size()
        pairs += equality_deletes
        scope, kept = scopes.number(file), pairs <= MAX_PAIRS
        yield FileTask(
            number,
            file,
            planned if kept else None,
            str(file.location()),
            scope,
            int(file.dataSequenceNumber()),
            int(file.recordCount()),
            equality_deletes,
            others,
            not kept and reaching.misses_some_of(applying, scope, others.size()),
        )
        number += 1


class _Reaching:
    """Iceberg's sets of the equality deletes that reach a scope, made when they are asked for."""

    def __init__(self, table: IcebergTable, equality: Iterable[EqualityDelete]) -> None:
        self._table, self._sets = table, dict[int, Any]()
        self._deletes: dict[int | None, list[EqualityDelete]] = {}
        for delete in equality:
            self._deletes.setdefault(delete.scope, []).append(delete)

    def misses_some_of(self, applying: Any, scope: int, others: int) -> bool:
        """Tell whether a data file is paired with an equality delete that does not reach its scope.

        :param applying: Java list of every delete file that Iceberg pairs with it.
        :param others: how many of them are no equality deletes.
        """
        left = jvm(self._table.spark).java.util.ArrayList(applying)
        left.removeAll(self._set(scope))
        return bool(left.size() > others)

    def _set(self, scope: int) -> Any:
        if scope not in self._sets:
            self._sets[scope] = delete_file_set(self._table, self._deletes.get(scope, ()))
            self._sets[scope].addAll(self._everywhere)
        return self._sets[scope]

    @cached_property
    def _everywhere(self) -> Any:
        return delete_file_set(self._table, self._deletes.get(None, ()))


def _mispaired(table: IcebergTable, equality: Iterable[EqualityDelete]) -> list[EqualityDelete]:
    """Equality deletes that Iceberg's planning loses: it compares the bounds of uuids as signed numbers, and Parquet
    writes them unsigned (apache/iceberg #14216, open in 1.12), so that nearly no file seems to hold the key."""
    deletes, types = list(equality), {field.id: field.type for field in table.fields}
    dropped = {field_id for delete in deletes for field_id in delete.field_ids} - types.keys()
    known = {**types, **field_types(table, dropped)} if dropped else types
    return [delete for delete in deletes if any(known[field_id] == "uuid" for field_id in delete.field_ids)]


def _repaired(builder: TaskBuilder, planned: Any, mispaired: Iterable[EqualityDelete], scopes: Scopes) -> Any:
    """The same task with those deletes too, by the specification's rule and without a look at bounds."""
    file = planned.file()
    scope, sequence_number = scopes.number(file), int(file.dataSequenceNumber())
    missing = [d for d in mispaired if d.reaches(scope, sequence_number)]
    return builder.task(
        file, {delete_key(d): d for d in [*listed(planned.deletes()), *(m.java for m in missing)]}.values()
    )


def equality_deletes_of(table: IcebergTable, task: FileTask) -> Any:
    """Java list of the equality deletes that Iceberg's planning pairs with a data file."""
    found = jvm(table.spark).java.util.ArrayList(task.planned.deletes())
    found.removeAll(task.others)
    return found


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
        :param deletes: Java ``DeleteFile`` objects, committed or not.
        """
        listed = deletes if hasattr(deletes, "isEmpty") else java_list(self._table.spark, deletes)
        # copied in the JVM: one call, however many deletes apply
        array = self._iterables.toArray(listed, self._delete_file_class)
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
    """Tell whether every equality delete that applies to the tasks is one of ``deletes``.

    :param deletes: every one of the tasks' scopes; of tasks without their plan only the scope is known to be theirs.
    """
    wanted = delete_file_set(table, deletes)
    return all(
        not task.astray if task.planned is None else wanted.containsAll(equality_deletes_of(table, task))
        for task in tasks
    )


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
