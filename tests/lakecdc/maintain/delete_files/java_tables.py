"""Tables written by Iceberg's generic Java writers, for types that Spark SQL does not have.

Values are given as Java's own parsers read them (``LocalTime``, ``UUID``, …); integer columns must be ``int``, because
py4j converts small Python integers only to ``int``.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakecdc.iceberg.jvm import int_array, jvm
from lakecdc.metadata.names import PATH_ID, POSITION_ID
from tests.conftest import Lake

Values = Mapping[str, Any]
_PARSERS = {
    "uuid": "java.util.UUID.fromString",
    "time": "java.time.LocalTime.parse",
    "timestamp_ns": "java.time.LocalDateTime.parse",
    "timestamptz_ns": "java.time.OffsetDateTime.parse",
}
_ARROW = {"int": pa.int32(), "double": pa.float64()}


class JavaTable:
    """A table with appends and deletes by key through Iceberg's generic writers.

    :param columns: Iceberg type by name; all optional.
    :param data_format: format of data and delete files.
    """

    def __init__(self, lake: Lake, columns: Mapping[str, str], version: int, data_format: str = "parquet") -> None:
        self._view, self._lake, self._types = jvm(lake.spark), lake, dict(columns)
        self.name = lake.new_name("java")
        self._create(version)
        self._table = lake.table(self.name)
        self._format = self._view.org.apache.iceberg.FileFormat.fromString(data_format)

    def append(self, *rows: Values) -> None:
        """Commit rows as one data file."""
        self._table.refresh()
        delta = self._table.java.newRowDelta()
        delta.addRows(self._write(rows, None)).commit()

    def delete(self, *keys: Values) -> None:
        """Commit the keys as one equality-delete file; their columns are the equality columns."""
        self._table.refresh()
        delta = self._table.java.newRowDelta()
        delta.addDeletes(self._write(keys, list(keys[0]))).commit()

    def delete_nothing(self, *key: str) -> None:
        """Commit a delete file without rows: an equality delete with this key, or without a key a position delete.

        Iceberg's writers then write no Parquet file, other writers do.
        """
        table = self._table.refresh()
        builder = self._view.org.apache.iceberg.FileMetadata.deleteFileBuilder(table.java.spec())
        if key:
            ids = [table.field_id(column) for column in key]
            builder = builder.ofEqualityDeletes(int_array(self._lake.spark, ids))
            columns = [
                pa.field(name, _ARROW[self._types[name]], metadata={"PARQUET:field_id": str(field_id)})
                for name, field_id in zip(key, ids, strict=True)
            ]
        else:
            builder = builder.ofPositionDeletes()
            columns = [
                pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": str(PATH_ID)}),
                pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(POSITION_ID)}),
            ]
        location = str(table.java.locationProvider().newDataLocation(f"{uuid.uuid4()}.parquet"))
        path = Path(location.removeprefix("file:"))
        pq.write_table(pa.schema(columns).empty_table(), path)
        builder = builder.withPath(location).withFormat("PARQUET").withRecordCount(0)
        delta = table.java.newRowDelta()
        delta.addDeletes(builder.withFileSizeInBytes(path.stat().st_size).build()).commit()

    def add_column_with_default(self, column: str, kind: str, default: str) -> None:
        """Add a column with a default for older rows (format v3), which Spark SQL cannot do."""
        types, literal = self._view.org.apache.iceberg.types.Types, self._view.org.apache.iceberg.expressions.Literal
        update = self._table.refresh().java.updateSchema()
        update.addColumn(column, types.fromPrimitiveString(kind), literal.of(default)).commit()
        self._types[column] = kind

    def _create(self, version: int) -> None:
        fields = [
            {"id": number, "name": name, "required": False, "type": kind}
            for number, (name, kind) in enumerate(self._types.items(), 1)
        ]
        view = self._view.org.apache.iceberg
        schema = view.SchemaParser.fromJson(json.dumps({"type": "struct", "schema-id": 0, "fields": fields}))
        properties = self._view.java.util.HashMap()
        properties.put("format-version", str(version))
        catalog = view.spark.Spark3Util.loadIcebergCatalog(self._lake.spark._jsparkSession, "lake")
        identifier = view.catalog.TableIdentifier.parse(self.name)
        catalog.createTable(identifier, schema, view.PartitionSpec.unpartitioned(), properties)

    def _write(self, rows: Sequence[Values], key: Sequence[str] | None) -> Any:
        table, view = self._table.java, self._view
        schema = table.schema().select(list(key)) if key else table.schema()
        builder = view.org.apache.iceberg.data.GenericFileWriterFactory.Builder(table)
        builder = builder.dataSchema(table.schema()).dataFileFormat(self._format).deleteFileFormat(self._format)
        if key:
            ids = int_array(self._lake.spark, [self._table.field_id(column) for column in key])
            builder = builder.equalityFieldIds(ids).equalityDeleteRowSchema(schema)
        factory, spec = builder.build(), table.spec()
        make = factory.newEqualityDeleteWriter if key else factory.newDataWriter
        writer = make(self._output(), spec, None)
        for row in rows:
            writer.write(self._record(schema, row))
        writer.close()
        return writer.toDeleteFile() if key else writer.toDataFile()

    def _output(self) -> Any:
        table, suffix = self._table.java, self._format.toString().lower()
        file = table.io().newOutputFile(table.locationProvider().newDataLocation(f"{uuid.uuid4()}.{suffix}"))
        return self._view.org.apache.iceberg.encryption.EncryptedFiles.plainAsEncryptedOutput(file)

    def _record(self, schema: Any, row: Values) -> Any:
        record = self._view.org.apache.iceberg.data.GenericRecord.create(schema)
        for column, given in row.items():
            record.setField(column, self._value(given, self._types[column]))
        return record

    def _value(self, given: Any, kind: str) -> Any:
        if given is None or kind not in _PARSERS:
            return given
        parser = self._view
        for part in _PARSERS[kind].split("."):
            parser = getattr(parser, part)
        return parser(given)
