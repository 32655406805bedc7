"""Tasks that read rows at given places; separate from the driver's code, which workers need not import."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lakecdc.iceberg.file_io import source
from lakecdc.key_search.tasks import Stored, rows_of
from lakecdc.reader.parquet_files import parquet_file, rows_of_groups
from lakecdc.writer.files import slices

#: rows of a row group to read, by their places in it
PART = "location string, part int, places binary"
_ROWS_BYTES = 8 * 1024**2


@dataclass(frozen=True)
class RowsTask:
    """A task that reads rows at given places; its input rows are :data:`PART`.

    :param schema: Spark's schema of the columns.
    """

    stored: Stored
    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in slices((rows for part in rows_of(batches) for rows in self._rows(part)), _ROWS_BYTES):
            yield from rows.combine_chunks().to_batches()

    def _rows(self, part: Mapping[str, Any]) -> Iterator[pa.Table]:
        places, begin = np.frombuffer(part["places"], "int64"), 0
        with source(self.stored.properties, part["location"]).open() as stream:
            parquet = parquet_file(stream, part["location"])
            columns = self.stored.projection(parquet.schema_arrow, self.stored.columns)
            for rows in rows_of_groups(parquet, [part["part"]], columns):
                here = places[(places >= begin) & (places < begin + rows.num_rows)] - begin
                begin += rows.num_rows
                if len(here):
                    # member names of nested types may differ; the cast ignores them
                    yield columns(rows.take(pa.array(here))).cast(self.schema)
                if not len(places) or begin > places[-1]:
                    break
