"""The canonical change frame, which every source produces and every mode applies.

Columns of the frame, one row per change event:

=============  =======================================================================================
``op``         ``r`` full-load row, ``c`` insert, ``u`` update, ``d`` delete
``key``        struct of the event's key columns; for a delete the deleted key
``row``        struct of all columns after the event, typed; null for a delete
``open``       array of column names whose value in ``row`` is only a placeholder for "unchanged"; null if none
``old_key``    struct of the key columns the row had before, if the event moved it to ``key``; else null.
               The decoder also yields the delete of the old key as a separate event
``order``      the order key (see ``order``)
``source_time``  timestamp at which the source committed the event
``late``       optional: the event is not above its source partition's mark. Without the column an event is
               late if it is not above the table's highest order key
=============  =======================================================================================
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import Accumulator
    from pyspark.sql import DataFrame

    from lakecdc.ingest.fold import Stats

#: yields the rows of a task, given its number
ReadShare = Callable[[int], "Iterator[pa.Table]"]


@dataclass(frozen=True)
class Column:
    """A column as the target table should have it.

    :param type: Spark SQL type, such as ``decimal(12,2)``.
    :param required: NOT NULL; only key columns are created so.
    :param fill: value in rows older than the column (``ADD COLUMN … DEFAULT``), which the source's log leaves out.
    """

    name: str
    type: str
    required: bool = False
    fill: object = None


def alike(names: Sequence[str]) -> list[str]:
    """Return the names that differ from another one only in case, which Spark cannot distinguish."""
    lower = Counter(name.lower() for name in names)
    return [name for name in names if lower[name.lower()] > 1]


@dataclass(frozen=True)
class ColumnHistory:
    """Source columns for logs that record every DDL change, so that even swapped names can be followed.

    :param before: the columns at the beginning of the batch; ``SourceFacts.columns`` has those at its end.
    :param begin: start of the batch, as a number that increases along the log.
    """

    before: Mapping[str, int | None]
    begin: int
    end: int


@dataclass(frozen=True, eq=False)
class Load:
    """A full load that tasks can read and write without Spark.

    :param read: yields, in a task, the rows of the task with a certain number, as ``TypeRows.typed`` of
        ``formats.text_columns`` returns them: the batch's columns in order.
    :param tasks: number of tasks, numbered from 0.
    :param order: order key of every row.
    :param time: source time of every row.
    :param judged: change frame of all rows, with the columns ``formats.text_columns.JUDGED``, null for rows that fit.
    :param unpacked: returns the change frame for packed cells of the rows that ``read`` yields.
    :param left_out: counts the rows that do not fit, which the change frame leaves out each time it is read.
    :param refusal: why tasks may not read it, or None.
    """

    read: ReadShare
    tasks: int
    order: str
    time: datetime
    judged: DataFrame
    unpacked: Callable[[DataFrame], DataFrame]
    left_out: Accumulator[int]
    refusal: str | None = None


@dataclass(frozen=True, eq=False)
class Rows:
    """Changes of a batch, in any representation.

    :param frame: the change frame.
    :param folded: it has one row per key, with event counts ``n_r``, ``n_c``, ``n_u``, ``n_d``.
    :param keys: number of keys, to size a write; 0 if unknown.
    :param filled_keys: keys whose last event left out columns that the fold filled from earlier ones.
    :param unfolded: returns the rows of every event, if ``frame`` is folded.
    :param void_below: order key of a TRUNCATE; folded rows leave out the events below it.
    :param load: the full load of these rows, if reading it shows which values fit; None if that is known.
    """

    frame: DataFrame
    folded: bool = False
    keys: int = 0
    filled_keys: int = 0
    unfolded: Callable[[], Rows] | None = None
    void_below: str | None = None
    load: Load | None = None

    @property
    def is_kept(self) -> bool:
        """Check whether Spark keeps the rows, so they can be read twice."""
        return False

    @property
    def stats(self) -> Stats | None:
        """Return facts of the rows if they are known without a Spark job."""
        return None

    @property
    def deletes(self) -> DataFrame:
        """Return the deletes, with at least ``key, op, order, source_time``."""
        return self.frame.where("op = 'd'")

    def every_event(self) -> Rows:
        """Return the rows of every event, before the fold."""
        return self.unfolded() if self.folded and self.unfolded else self

    def with_frame(self, frame: DataFrame) -> Rows:
        """Return the rows with another frame, which tasks cannot read; unchanged if the frame is the same."""
        if frame is self.frame:
            return self
        load = replace(self.load, refusal="the rows are cleaned") if self.load else None
        return Rows(frame, self.folded, self.keys, self.filled_keys, self.unfolded, self.void_below, load)

    def for_table_alone(self, *, may_be_held: bool) -> DataFrame | None:
        """Return the folded rows with placeholders if only the table can fill them; None if events may too.

        :param may_be_held: the table may have newer states of rows than the events.
        """
        return None

    def with_completed(self, completed: DataFrame) -> Rows:
        """Return the rows with those of :meth:`for_table_alone` replaced.

        :param completed: ``key, op, row, order, source_time``.
        """
        raise NotImplementedError
