"""Write the rows of a DataFrame as files of a table: by tasks with Arrow, or by Iceberg's writer where it has to."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakecdc.iceberg.definition import spark_types
from lakecdc.iceberg.file_io import folder_of_work
from lakecdc.iceberg.staging import stage_rows
from lakecdc.runtime.worker import settle
from lakecdc.sql import quoted_column
from lakecdc.writer.files import PartitionFiles, slices
from lakecdc.writer.parquet import FileColumn, FilePlace, file_columns, refusal
from lakecdc.writer.partitions import Partitioning, columns_of, in_order, partitioning_of, with_partitions
from lakecdc.writer.stage import RESULT, data_files

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from lakecdc.iceberg.table import IcebergTable

log = logging.getLogger(__name__)

_KIND = "frame"


def stage_frame(table: IcebergTable, rows: DataFrame) -> list[Any]:
    """Write rows as data files of the table, uncommitted.

    :param rows: the table's columns in its types, see :func:`lakecdc.iceberg.staging.columns_of`; files are fewer where
        the rows of each partition are together.
    :return: Java ``DataFile`` objects for a commit of this session.
    """
    if why := refusal(table):
        log.info("%s: Iceberg's own writer writes the rows, because %s", table.name, why)
        return [file for file in stage_rows(table, rows) if int(file.recordCount())]
    with folder_of_work(table, _KIND) as folder:
        return data_files(table, _written(table, rows, folder), _KIND)


def _written(table: IcebergTable, rows: DataFrame, folder: str) -> list[Any]:
    """Let tasks write the files, and return what they tell."""
    from pyspark.sql import functions as F

    types = spark_types(table)
    sources = {name: f"c{place}" for place, name in enumerate(types)}
    partitioning = partitioning_of(table, types, sources)
    # refusal() would have told
    assert partitioning is not None
    task = FrameTask(FilePlace.of(table, folder), file_columns(table, sources), partitioning)
    given = rows.select(*[F.col(quoted_column(name)).alias(source) for name, source in sources.items()])
    return given.mapInArrow(task, RESULT).collect()


@dataclass(frozen=True)
class FrameTask:
    """Rows of a frame in, one row per written file out.

    :param columns: of the files.
    """

    place: FilePlace
    columns: tuple[FileColumn, ...]
    partitioning: Partitioning

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write one slice after another, each in the order of its partitions."""
        import pyarrow as pa

        settle()
        files, names = PartitionFiles(self.place, self.columns, _KIND), columns_of(self.partitioning)
        for piece in slices(pa.Table.from_batches([batch]) for batch in batches):
            yield from files.write(in_order(with_partitions(piece, self.partitioning), names), names)
        yield from files.close()
