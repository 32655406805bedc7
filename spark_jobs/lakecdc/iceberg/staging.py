"""Data files and equality-delete files before their commit: written by Iceberg's own writers, or described to it."""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from lakecdc.iceberg.file_io import marked_location
from lakecdc.iceberg.jvm import int_array, java_list, jvm, listed, long_array, table_cache
from lakecdc.metadata.names import PATH_ID, POSITION_ID

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from lakecdc.iceberg.table import IcebergTable

_DATA_PATH = "write.data.path"


@dataclass(frozen=True)
class WrittenFile:
    """A Parquet file with field ids.

    :param partition: partition values as JSON has them, in the order of the spec's fields without those that are always
        null.
    :param offsets: first bytes of its row groups; empty if they are not known.
    :param nans: number of NaNs by field id, as JSON.
    """

    location: str
    bytes: int
    partition: tuple[str | int | bool | None, ...] = ()
    offsets: tuple[int, ...] = ()
    nans: str = "{}"


def stage_rows(
    table: IcebergTable,
    rows: DataFrame,
    *,
    properties: Mapping[str, str] = MappingProxyType({}),
    **options: str | int | None,
) -> list[Any]:
    """Write rows as data files of the table, uncommitted.

    :param rows: columns named as in the table's schema.
    :param properties: table properties for these files only.
    :param options: Iceberg write options, ``_`` for ``-``, such as ``output_spec_id`` or ``target_file_size_bytes``.
    :return: Java ``DataFile`` objects for a commit of this session.
    """
    return _stage(table, table.java, rows, properties, options)


def columns_of(table: IcebergTable, values: Mapping[str, Column]) -> list[Column]:
    """Return a table's columns in its order and types, for rows to stage; columns without a value are null."""
    from pyspark.sql import functions as F

    fields = table.spark.table(table.sql_name).schema.fields
    return [values.get(f.name, F.lit(None)).cast(f.dataType).alias(f.name) for f in fields]


def stage_equality_deletes(table: IcebergTable, keys: DataFrame, key: Sequence[str], spec_id: int) -> list[Any]:
    """Write key rows as equality-delete files of one partition spec, uncommitted.

    Iceberg's own writer writes them as data files of an uncommitted transaction whose schema drops the other columns.

    :param keys: one row per key to delete, with exactly the columns ``key``.
    :param spec_id: an equality delete applies only to files of its own spec.
    :return: Java ``DeleteFile`` objects for a commit of this session.
    """
    ids = int_array(table.spark, [table.field_id(column) for column in key])
    data_files = _stage(table, _key_only(table, key), keys, {}, {"output_spec_id": spec_id})
    return [_as_equality_delete(table, data_file, ids) for data_file in data_files]


@contextmanager
def staged_tasks(table: IcebergTable, tasks: Sequence[Any], java_table: Any = None) -> Iterator[str]:
    """Make Java ``FileScanTask`` objects readable with ``spark.read.format("iceberg").load``; yield the name to load.

    :param java_table: whose columns are read; default: the table's.
    """
    group = str(uuid.uuid4())
    cache = table_cache(table.spark)
    manager = jvm(table.spark).org.apache.iceberg.spark.ScanTaskSetManager.get()
    cache.add(group, java_table or table.java)
    manager.stageTasks(table.java, group, java_list(table.spark, tasks))
    try:
        yield group
    finally:
        manager.removeTasks(table.java, group)
        cache.remove(group)


def describe(table: IcebergTable, written: Iterable[WrittenFile], spec_id: int, key: Sequence[str] = ()) -> list[Any]:
    """Describe files, with the metrics from their footers that the table keeps.

    :param key: the equality columns of delete files; empty for data files.
    :return: Java ``DataFile`` or ``DeleteFile`` objects for a commit of this session.
    """
    apache = jvm(table.spark).org.apache.iceberg
    spec, config = table.java.specs().get(spec_id), apache.MetricsConfig.forTable(table.java)
    partition_type = spec.partitionType() if spec.isPartitioned() else None
    field_ids = [str(f.fieldId()) for f in listed(spec.fields()) if str(f.transform().toString()) != "void"]
    equality_ids = int_array(table.spark, [table.field_id(column) for column in key])

    def described(one: WrittenFile) -> Any:
        if key:
            builder = apache.FileMetadata.deleteFileBuilder(spec).ofEqualityDeletes(equality_ids)
        else:
            builder = apache.DataFiles.builder(spec)
        builder = _of_file(table, builder, one, config)
        if partition_type is not None:
            values = json.dumps(dict(zip(field_ids, one.partition, strict=True)))
            builder = builder.withPartition(apache.SingleValueParser.fromJson(partition_type, values))
        return builder.build()

    return [described(one) for one in written]


def describe_like(table: IcebergTable, written: Iterable[WrittenFile], like: Any, sort_order_id: int) -> list[Any]:
    """Describe data files of the same partition as another one; see :func:`describe`.

    :param like: a Java ``DataFile``.
    :param sort_order_id: the table's id of their order; 0 for another order or none.
    """
    apache, java = jvm(table.spark).org.apache.iceberg, table.java
    spec, config, order = java.specs().get(like.specId()), apache.MetricsConfig.forTable(java), None
    if sort_order_id:
        order = java.sortOrders().get(sort_order_id)

    def described(one: WrittenFile) -> Any:
        offsets = apache.util.ArrayUtil.toUnmodifiableLongList(long_array(table.spark, one.offsets))
        builder = _of_file(table, apache.DataFiles.builder(spec), one, config).withSplitOffsets(offsets)
        if spec.isPartitioned():
            builder = builder.withPartition(like.partition())
        return (builder.withSortOrder(order) if order else builder).build()

    return [described(one) for one in written]


def _of_file(table: IcebergTable, builder: Any, one: WrittenFile, config: Any) -> Any:
    """Set the location and metrics of a data or delete file in its builder; the file's footer has no NaN counts."""
    file, apache = table.java.io().newInputFile(one.location, one.bytes), jvm(table.spark).org.apache.iceberg
    metrics = apache.parquet.ParquetUtil.fileMetrics(file, config)
    if nans := json.loads(one.nans):
        types = apache.types.Types
        of_counts = types.MapType.ofRequired(1, 2, types.IntegerType.get(), types.LongType.get())
        counts = metrics.nanValueCounts()
        counts.putAll(
            apache.SingleValueParser.fromJson(
                of_counts, json.dumps({"keys": [*map(int, nans)], "values": [*nans.values()]})
            )
        )
        # not of columns without metrics
        counts.keySet().retainAll(metrics.valueCounts().keySet())
    return builder.withPath(one.location).withFormat("PARQUET").withFileSizeInBytes(one.bytes).withMetrics(metrics)


def discard(table: IcebergTable, files: Sequence[Any]) -> None:
    """Delete uncommitted staged files through the table's FileIO, ignoring missing ones."""
    for file in files:
        table.java.io().deleteFile(file.location())


def _stage(
    table: IcebergTable,
    java_table: Any,
    rows: DataFrame,
    properties: Mapping[str, str],
    options: dict[str, str | int | None],
) -> list[Any]:
    group, cache = str(uuid.uuid4()), table_cache(table.spark)
    coordinator = jvm(table.spark).org.apache.iceberg.spark.FileRewriteCoordinator.get()
    cache.add(group, _in_marked_folder(table, java_table, properties))
    try:
        writer = (
            rows.write.format("iceberg")
            .option("use-table-distribution-and-ordering", "false")
            .option("fanout-enabled", "true")
            .mode("append")
        )
        for name, value in options.items():
            if value is not None:
                writer = writer.option(name.replace("_", "-"), str(value))
        writer.save(group)
        files = listed(coordinator.fetchNewFiles(table.java, group))
        coordinator.clearRewrite(table.java, group)
        return files
    finally:
        cache.remove(group)


def _in_marked_folder(table: IcebergTable, java_table: Any, properties: Mapping[str, str]) -> Any:
    """Return a Java table whose new files go to the application's folder; a transaction would load the table again."""
    apache, operations = jvm(table.spark).org.apache, table.java.operations()
    own = {**properties, _DATA_PATH: marked_location(table)}
    metadata = apache.iceberg.TableMetadata.buildFrom(java_table.operations().current()).setProperties(own).build()
    return apache.iceberg.BaseTable(operations.temp(metadata), table.java.name())


def _key_only(table: IcebergTable, key: Sequence[str]) -> Any:
    transaction = table.java.newTransaction()
    update = transaction.updateSchema()
    for field in table.fields:
        if field.name not in key:
            update = update.deleteColumn(field.name)
    update.commit()
    return transaction.table()


def _as_equality_delete(table: IcebergTable, data_file: Any, ids: Any) -> Any:
    view = jvm(table.spark)
    metrics = view.org.apache.iceberg.Metrics(
        data_file.recordCount(),
        data_file.columnSizes(),
        data_file.valueCounts(),
        data_file.nullValueCounts(),
        data_file.nanValueCounts(),
        data_file.lowerBounds(),
        data_file.upperBounds(),
    )
    builder = (
        view.org.apache.iceberg.FileMetadata.deleteFileBuilder(table.java.specs().get(data_file.specId()))
        .ofEqualityDeletes(ids)
        .withPath(data_file.location())
        .withFormat(data_file.format().toString())
        .withFileSizeInBytes(data_file.fileSizeInBytes())
        .withMetrics(metrics)
        .withSplitOffsets(data_file.splitOffsets())
    )
    if data_file.partition().size():
        builder = builder.withPartition(data_file.partition())
    return builder.build()


@dataclass(frozen=True)
class WrittenDeletes:
    """The written positions of one data file.

    :param file_number: the data file's :attr:`FileTask.number`.
    :param location: the delete file, or the Puffin file.
    :param bytes: size of that whole file.
    :param added: number of them that no position delete covered before.
    :param offset: first byte of the deletion vector; None in a Parquet file, like its length.
    """

    file_number: int
    location: str
    bytes: int
    records: int
    added: int
    lowest: int
    highest: int
    offset: int | None = None
    length: int | None = None


def delete_file(table: IcebergTable, data_file: Any, written: WrittenDeletes) -> Any:
    """Return the Java ``DeleteFile`` of positions, with the spec and partition of their Java ``DataFile``.

    Readers refuse a position delete of another partition than its data file, such as the equality delete's.
    """
    builder = (
        jvm(table.spark)
        .org.apache.iceberg.FileMetadata.deleteFileBuilder(table.java.specs().get(data_file.specId()))
        .ofPositionDeletes()
        .withPath(written.location)
        .withFileSizeInBytes(written.bytes)
        .withReferencedDataFile(data_file.location())
    )
    if data_file.partition().size():
        builder = builder.withPartition(data_file.partition())
    if written.offset is None:
        lower, upper = (_bounds(table, data_file.location(), at) for at in (written.lowest, written.highest))
        metrics = jvm(table.spark).org.apache.iceberg.Metrics(written.records, None, None, None, None, lower, upper)
        builder = builder.withFormat("PARQUET").withMetrics(metrics)
    else:
        builder = builder.withFormat("PUFFIN").withRecordCount(written.records)
        builder = builder.withContentOffset(written.offset).withContentSizeInBytes(written.length)
    return builder.build()


def _bounds(table: IcebergTable, path: str, position: int) -> Any:
    """Encode bounds in the specification's single-value serialisation: UTF-8, and 8 bytes little endian."""
    view = jvm(table.spark)
    bounds = view.java.util.HashMap()
    bounds.put(PATH_ID, view.java.nio.ByteBuffer.wrap(bytearray(path.encode())))
    bounds.put(POSITION_ID, view.java.nio.ByteBuffer.wrap(bytearray(struct.pack("<q", position))))
    return bounds
