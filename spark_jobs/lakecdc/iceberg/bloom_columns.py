"""Bloom filters by lakecdc's table property: rewrites write them, ingestion does not.

Iceberg's own properties would apply to every writer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from lakecdc.contract.errors import InputError
from lakecdc.iceberg.core_time import run_tasks
from lakecdc.iceberg.file_io import reaches, source, storage_properties
from lakecdc.local_relation import spread
from lakecdc.metadata import names

if TYPE_CHECKING:
    import pyarrow as pa

    from lakecdc.iceberg.table import IcebergTable

#: begins Iceberg's property of a column that every writer writes a filter for
ENABLED = "write.parquet.bloom-filter-enabled.column."
_ADAPTIVE = "write.parquet.bloom-filter-adaptive-enabled"
_FORMAT = "write.format.default"
# types without Parquet Bloom filters
_UNFILTERED = ("boolean", "struct", "list", "map", "variant", "geo", "unknown")


def bloom_filter_columns(table: IcebergTable) -> list[str]:
    """Return the columns that need Bloom filters.

    :raises InputError: the table's property names a column that cannot have one.
    """
    columns = [name.strip() for name in table.properties.get(names.BLOOM_FILTER_COLUMNS, "").split(",") if name.strip()]
    types = {field.name: field.type for field in table.fields}
    odd = [name for name in columns if types.get(name, "unknown").startswith(_UNFILTERED)]
    if odd:
        raise InputError(
            f"Cannot write a Bloom filter for {odd[0]!r} in the property {names.BLOOM_FILTER_COLUMNS}.",
            table=table.name,
            hint="Use a comma-separated list of existing top-level columns of primitive types other than boolean.",
        )
    if columns and table.properties.get(_FORMAT, "parquet") != "parquet":
        raise InputError(
            f"The table has {_FORMAT} {table.properties[_FORMAT]}; {names.BLOOM_FILTER_COLUMNS} is for Parquet files.",
            table=table.name,
            hint=f"Unset {names.BLOOM_FILTER_COLUMNS}.",
        )
    return columns


def bloom_filter_properties(table: IcebergTable, columns: Sequence[str]) -> dict[str, str]:
    """Return the table properties that make Iceberg's writers write the filters, sized by distinct values."""
    enabled = {f"{ENABLED}{column}": "true" for column in columns}
    return enabled | ({_ADAPTIVE: "true"} if enabled and _ADAPTIVE not in table.properties else {})


def without_bloom_filters(table: IcebergTable, columns: Sequence[str], locations: Collection[str]) -> set[str]:
    """Return data files that lack a filter which a rewrite would write; tasks read their footers.

    :raises InputError: tasks cannot read the table's files.
    """
    if not columns or not locations:
        return set()
    if not all(map(reaches, locations)):
        raise InputError(
            "Cannot check which files lack Bloom filters: tasks cannot read paths with '#' or '?'.",
            table=table.name,
            hint="Remove options.add_bloom_filters; files that are rewritten for another reason still get filters.",
        )
    task = partial(_lacking, ids={table.field_id(column) for column in columns}, properties=storage_properties(table))
    files = spread(table.spark, [(location,) for location in sorted(locations)], "location string")
    return {row.location for row in run_tasks(files, task, "location string").collect()}


def _lacking(batches: Iterator[pa.RecordBatch], ids: set[int], properties: dict[str, str]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for batch in batches:
        lacking = []
        for location in batch.column(0).to_pylist():
            with source(properties, location).open() as stream:
                try:
                    lacks = _lacks(pq.ParquetFile(stream), ids)
                except pa.ArrowInvalid:
                    # another format, which a rewrite converts to Parquet
                    lacks = True
            if lacks:
                lacking.append(location)
        yield pa.RecordBatch.from_arrays([pa.array(lacking, pa.string())], ["location"])


def _lacks(file: Any, ids: set[int]) -> bool:
    """Check whether a column in the file has no filter; Parquet writes none where a dictionary has all values."""
    from lakecdc.model.iceberg_columns import field_id

    columns = {field.name for field in file.schema_arrow if field_id(field) in ids}
    chunks = (
        file.metadata.row_group(group).column(leaf)
        for group in range(file.num_row_groups)
        for leaf in range(file.metadata.num_columns)
    )
    return any(
        chunk.bloom_filter_offset is None and not (chunk.has_dictionary_page and "PLAIN" not in chunk.encodings)
        for chunk in chunks
        if chunk.path_in_schema in columns
    )
