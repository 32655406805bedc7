"""Pack changes that a frame has into the layout of the tasks that fold and write them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecdc.ingest.formats.native import packing
from lakecdc.ingest.formats.native.facts import Facts
from lakecdc.ingest.formats.native.layout import COUNTS, ORDER_PARTS, events_schema
from lakecdc.ingest.formats.native.placeholders import LeftOutError
from lakecdc.ingest.formats.native.tasks import EVERY, OddError, holders
from lakecdc.ingest.order import EVENT_DIGITS, Marks
from lakecdc.model.columns import arrow_type
from lakecdc.runtime.worker import duckdb_of_its_own, settle

if TYPE_CHECKING:
    import pyarrow as pa

    from lakecdc.ingest.formats.native.grouping import Grouping
    from lakecdc.ingest.formats.values import Field

#: columns of the frames that are packed
COLUMNS = ("op", "key", "row", "open", "old_key", "order", "source_time", "partition")
# where the parts of an order key end: position, ordinal, rank, time, arrival
_ENDS = (4, 20, 36, 37, EVENT_DIGITS, None)
_MOST = 2**63 - 1


@dataclass(frozen=True)
class PackTask:
    """Changes in, a packed frame out.

    :param fields: columns of the row.
    :param key: names of the key columns.
    :param epoch: of the order keys.
    :param grouping: how the keys of folded rows are told apart; None if none are wanted.
    :param every: every event is wanted, in the group :data:`~lakecdc.ingest.formats.native.tasks.EVERY`.
    :param marks: how far the table has come, for events that leave values out; None where none may.
    """

    fields: tuple[Field, ...]
    key: tuple[str, ...]
    epoch: int
    grouping: Grouping | None
    every: bool
    marks: Marks | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pack until the input ends, or a change is met that tasks cannot fold."""
        settle()
        try:
            with duckdb_of_its_own() as connection:
                held = holders(
                    self.grouping,
                    self.epoch,
                    connection,
                    [one.name for one in self.fields],
                    every=self.every,
                    alone=False,
                    schema=None,
                    marks=self.marks,
                )
                for batch in batches:
                    events = self._events(batch)
                    for one in held:
                        yield from one.add(events)
                for one in held:
                    yield from one.rest()
        except OddError as error:
            yield packing.row(EVERY if self.every else 0, Facts(odd=str(error)).to_json(), None)
        except LeftOutError as error:
            yield packing.row(0, Facts(left_out=str(error)).to_json(), None)

    def _events(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return changes in the tasks' layout, with the columns of the checks."""
        import pyarrow as pa
        import pyarrow.compute as pc

        schema = events_schema({one.name: arrow_type(one.type) for one in self.fields}, self.key)
        old_key = batch.column("old_key")
        columns = {
            "op": batch.column("op"),
            **{f"k{i}": column for i, column in enumerate(batch.column("key").flatten())},
            **{f"c{i}": column for i, column in enumerate(batch.column("row").flatten())},
            "open": batch.column("open"),
            "moved": old_key.is_valid(),
            **{f"o{i}": column for i, column in enumerate(old_key.flatten())},
            **_order_parts(batch.column("order").to_pylist()),
            "time_us": batch.column("source_time").cast(pa.timestamp("us", "UTC")).cast(pa.int64()),
            "partition": batch.column("partition"),
            **{name: pc.equal(batch.column("op"), name[-1]) for name in COUNTS},
        }
        checks = {"odd": pa.nulls(len(batch), pa.string()), "message": pa.nulls(len(batch))}
        checks["source_table"] = pa.nulls(len(batch), pa.string())
        return pa.RecordBatch.from_pydict({**{one.name: columns[one.name].cast(one.type) for one in schema}, **checks})


def _order_parts(orders: list[str]) -> dict[str, pa.Array]:
    """Return the parts of order keys.

    :raises OddError: one is larger than tasks can compare.
    """
    import pyarrow as pa

    bounds = list(zip(_ENDS, _ENDS[1:], strict=False))
    parts = [[int(order[begin:end], 16) for order in orders] for begin, end in bounds]
    if any(max(part, default=0) > _MOST for part in parts):
        raise OddError("a position out of range")
    return {name: pa.array(part, pa.int64()) for name, part in zip(ORDER_PARTS, parts, strict=True)}
