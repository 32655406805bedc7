"""Keep the row ids of rows that a batch replaces (specification, "Row Lineage")."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecdc.iceberg.table import IcebergTable
from lakecdc.key_search.tasks import serialized, unpacked
from lakecdc.metadata.names import ROW_ID, ROW_ID_ID
from lakecdc.model.iceberg_columns import holds_uuid
from lakecdc.reader.projection import ReadColumn
from lakecdc.writer.parquet import FileColumn

#: the column with the ids of rows to write
SOURCE = "row_id"
#: the column of a file that stores row ids
COLUMN = FileColumn(ROW_ID_ID, ROW_ID, "long", False, SOURCE)


@dataclass(frozen=True)
class RowIds:
    """Row ids by key for tasks: a broadcast of a table ``d0`` …, ``row_id``.

    :param columns: of the key, by name.
    """

    columns: Mapping[str, ReadColumn]
    sent: Any = field(repr=False)

    def added_to(self, rows: pa.Table, sources: Mapping[str, str]) -> pa.Table:
        """Add the row id to rows, null for new rows.

        :param sources: the columns of the rows, by the table's names.
        """
        values = [rows[sources[name]].cast(column.field().type) for name, column in self.columns.items()]
        return rows.append_column(SOURCE, self._row_ids(values))

    @cached_property
    def _known(self) -> pa.Table:
        return unpacked(self.sent.value).combine_chunks()

    def _row_ids(self, values: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
        known = self._known
        if len(values) == 1:
            return known[SOURCE].take(pc.index_in(values[0], value_set=known["d0"]))
        names = [f"d{index}" for index in range(len(values))]
        rows = pa.table([*values, pa.array(np.arange(len(values[0])))], names=[*names, "place"])
        return rows.join(known, names).sort_by("place")[SOURCE]


@contextmanager
def sent_to_tasks(
    table: IcebergTable, columns: Mapping[str, ReadColumn], existing: Sequence[pa.Table]
) -> Iterator[RowIds | None]:
    """Send keys and row ids of existing rows to tasks; yield None without rows, or if Spark has another type for a key.

    A key of several rows keeps the id of one of them.
    """
    tables = [one for one in existing if one.num_rows]
    if not tables or any(holds_uuid(column.field().type) for column in columns.values()):
        yield None
        return
    names = [f"d{index}" for index in range(len(columns))]
    whole = pa.concat_tables(tables)
    ids = whole.filter(whole[SOURCE].is_valid()).group_by(names).aggregate([(SOURCE, "min")])
    ids = ids.select([*names, f"{SOURCE}_min"]).rename_columns([*names, SOURCE])
    sent = table.spark.sparkContext.broadcast(serialized(ids))
    try:
        yield RowIds(columns, sent)
    finally:
        sent.destroy()


def same_rows(one: Sequence[pa.Table], other: Sequence[pa.Table]) -> bool:
    """Check whether two lists of tables with the same columns have the same rows, in any order."""
    if not one or not other:
        return not any(table.num_rows for table in (*one, *other))
    first, second = pa.concat_tables(one), pa.concat_tables(other)
    by = [(name, "ascending") for name in first.column_names]
    return bool(first.sort_by(by).combine_chunks().equals(second.sort_by(by).combine_chunks()))
