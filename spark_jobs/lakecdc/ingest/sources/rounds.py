"""A round of a database's log between tasks: one of them reads it, and all tables take their events out of it.

The events travel as few binary cells, of one table each (``formats.native.packing``), which Spark keeps on disk: rows
are made of them only where Spark is to look at each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pyspark import StorageLevel

from lakecdc.ingest.formats.native import Native, packing
from lakecdc.ingest.formats.native.log import LogLayout, LogSize, fold_log
from lakecdc.ingest.formats.native.tasks import rows_of_cells

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from lakecdc.contract.target import Target
    from lakecdc.ingest.change import TableBatch

#: columns of a round: the table's number and that of the cell among its cells; of the last row only the summary
SCHEMA = "relation bigint, cell int, summary string, packed binary"
# set while a round is read for the first time
_FIRST = "lakecdc.first-read"


def is_first_read() -> bool:
    """Tell whether a task reads its round for the first time, and not because an executor was lost.

    A round that is read again must not end earlier than the one that is known already; it may go on behind its end.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    return context is None or context.getLocalProperty(_FIRST) is not None


def packed(batches: Iterable[pa.RecordBatch], summary: Callable[[], str]) -> Iterator[pa.RecordBatch]:
    """The rows of a round.

    :param batches: decoded events, with the number of their table as ``relation``.
    :param summary: tells what was read, once all batches have been taken.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers: dict[int, int] = {}
    for batch in batches:
        table = pa.Table.from_batches([batch])
        relations = pc.unique(batch.column("relation")).to_pylist()
        for relation in relations:
            own = table.filter(pc.equal(table["relation"], relation)) if len(relations) > 1 else table
            for cell in packing.cells(own):
                numbers[relation] = numbers.get(relation, -1) + 1
                yield _row(relation, numbers[relation], None, cell)
    yield _row(None, None, summary(), None)


def _row(relation: int | None, number: int | None, summary: str | None, cell: pa.Buffer | None) -> pa.RecordBatch:
    import pyarrow as pa

    arrays = [pa.array([relation], pa.int64()), pa.array([number], pa.int32()), pa.array([summary], pa.string())]
    return pa.RecordBatch.from_arrays([*arrays, packing.binary(cell)], ["relation", "cell", "summary", "packed"])


def read(
    spark: SparkSession, task: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
) -> tuple[DataFrame, str]:
    """Read a round in one task.

    :param task: yields the rows of :func:`packed`.
    :return: its cells, on the executors' disks until they are released, and its summary.
    :raises PySparkException: if the task fails.
    """
    cells = spark.range(0, 1, 1, 1).mapInArrow(task, SCHEMA).persist(StorageLevel.DISK_ONLY)
    spark.sparkContext.setLocalProperty(_FIRST, "true")
    try:
        last = cells.where("summary IS NOT NULL").select("summary").first()
    except Exception:
        cells.unpersist()
        raise
    finally:
        spark.sparkContext.setLocalProperty(_FIRST, None)  # type: ignore[arg-type]
    assert last is not None
    return cells, str(last["summary"])


def of_table(cells: DataFrame, relation: int) -> DataFrame:
    """The cells of one table."""
    return cells.where(cells["relation"] == relation)


def folded(
    cells: DataFrame | None,
    relation: int,
    layout: LogLayout | str,
    size: LogSize,
    target: Target,
    partition_by: Sequence[str],
    epoch: int,
) -> Native:
    """The changes of one table, made by the native engine, or why they are the JVM's.

    :param cells: those of the round; None only where they are the JVM's.
    :param layout: how the engine takes them, or why it cannot.
    :param target: see :func:`fold_log`.
    :param partition_by: the target's partition transforms in SQL.
    """
    if isinstance(layout, str):
        return Native(reason=layout)
    assert cells is not None
    return fold_log(of_table(cells, relation), layout, size, target, partition_by, epoch)


def with_changes(made: Native, changes: Callable[..., DataFrame]) -> Native:
    """What the engine made, with ways to make every change anew; or, where they are the JVM's, the changes.

    :param changes: makes them in the JVM; with ``judged`` those whose values do not fit as well.
    """
    made = replace(made, judged=partial(changes, judged=True))
    return replace(made, unfolded=changes) if made.packed else replace(made, changes=changes())


def repeatable(batch: TableBatch, made: Native) -> TableBatch:
    """A batch that can be made again with every event of it: to be judged, and as it was if it is folded.

    :param made: its changes.
    """
    batch, changes = replace(batch, judged=made.judged), made.unfolded
    if not made.folded or changes is None:
        return batch
    plain = replace(batch, folded=False, packed=None, every_event=None)
    return replace(batch, again=lambda: replace(plain, changes=changes()))


def rows(cells: DataFrame, schema: str) -> DataFrame:
    """The events of some cells.

    :param schema: their columns, as they were decoded.
    """
    return cells.select("packed").mapInArrow(rows_of_cells, schema)
