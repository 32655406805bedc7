"""Facts that tasks report to the driver about their part of a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow.compute as pc

from lakecdc.ingest.engine.layout import COUNTS, OPS, ORDER_PARTS, order_texts
from lakecdc.model.order import RANK_CHANGE, Stretch, highest, joined, lowest, moment, order_key

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


class Facts(msgspec.Struct, frozen=True):
    """Facts about a part of a batch; facts of two parts can be merged. Orders are by ``topic/partition``.

    :param odd: why this engine cannot decode the batch in one pass.
    :param tables: source tables of its events, at most two.
    :param keys: rows that are not tombstones.
    :param events: by op, ``t`` for TRUNCATEs, ``x`` for tombstones.
    :param lone: keys with a tombstone and without a delete.
    :param open: rows with placeholders.
    :param filled: rows whose placeholders earlier events have filled completely.
    :param low_orders: lowest order keys of rows.
    :param high_orders: highest order keys; tombstones have none.
    :param newest: source time, microseconds since 1970.
    :param aside: number of messages set aside.
    :param why: why the first of them was set aside.
    :param schemas: columns of the messages' schemas as JSON, empty without a schema; at most two.
    :param left_out: why tasks cannot fold events that leave values out.
    :param first_orders: lowest order keys of events, folded or not; only for logs, and if values may be left out.
    :param rejected: number of rejected events, which the facts of rows do not include.
    :param moves: number of rows that delete an old key of a key update.
    """

    odd: str | None = None
    tables: tuple[str, ...] = ()
    keys: int = 0
    deletes: int = 0
    events: dict[str, int] = {}
    lone: int = 0
    open: int = 0
    filled: int = 0
    low_orders: dict[str, str] = {}
    high_orders: dict[str, str] = {}
    newest: int | None = None
    aside: int = 0
    why: str | None = None
    stretches: dict[str, list[Stretch]] = {}
    schemas: tuple[str, ...] = ()
    left_out: str | None = None
    first_orders: dict[str, str] = {}
    rejected: int = 0
    rejected_orders: dict[str, str] = {}
    rejected_newest: int | None = None
    moves: int = 0

    def count(self, ops: Iterable[str] = OPS) -> int:
        """Count the events of some ops, without rejected ones."""
        return sum(self.events.get(op, 0) for op in ops)

    @property
    def row_events(self) -> int:
        """Count the row events, including rejected ones."""
        return self.count() - self.moves + self.rejected

    @property
    def high_order(self) -> str | None:
        return max(self.high_orders.values(), default=None)

    @property
    def low_order(self) -> str | None:
        """Return the lowest order key of a row."""
        return min(self.low_orders.values(), default=None)

    @property
    def read_orders(self) -> dict[str, str]:
        """Return the highest order key by ``topic/partition``, including rejected events."""
        return highest([*self.high_orders.items(), *self.rejected_orders.items()])

    @property
    def newest_moment(self) -> datetime | None:
        """Return the source time of the newest event, including rejected ones."""
        newest = latest([self.newest, self.rejected_newest])
        return None if newest is None else moment(newest)

    @property
    def leaves_out(self) -> bool:
        """Check whether rows have placeholders, filled ones included."""
        return bool(self.open or self.filled)

    @property
    def whole(self) -> int:
        """Count the rows that are not deletes and have no placeholders."""
        return self.keys - self.deletes - self.open

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()


_DECODER = msgspec.json.Decoder(Facts)


def from_json(text: str) -> Facts:
    return _DECODER.decode(text)


def merged(parts: Iterable[Facts]) -> Facts:
    facts_of_parts = list(parts)
    facts = Facts(
        **{name: _MERGES[name]([getattr(part, name) for part in facts_of_parts]) for name in Facts.__struct_fields__}
    )
    if facts.odd is None and len(facts.schemas) > 1:
        return msgspec.structs.replace(facts, odd="messages of several schemas")
    return facts


def latest(times: Iterable[int | None]) -> int | None:
    """Return the latest known time."""
    return max((time for time in times if time is not None), default=None)


def _events(counts: list[dict[str, int]]) -> dict[str, int]:
    return {op: sum(count.get(op, 0) for count in counts) for op in (*OPS, "t", "x")}


def _orders(choose: Callable[..., dict[str, str]]) -> Callable[[list[dict[str, str]]], dict[str, str]]:
    return lambda orders: choose(pair for each in orders for pair in each.items())


def _ends(names: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the first and the last of some names; one if all are equal."""
    in_order = sorted({*chain(*names)})
    return tuple(dict.fromkeys((*in_order[:1], *in_order[-1:])))


# how facts of parts are merged
_MERGES: dict[str, Callable[[list[Any]], Any]] = {
    **dict.fromkeys(("odd", "why", "left_out"), lambda reasons: next(filter(None, reasons), None)),
    **dict.fromkeys(("keys", "deletes", "lone", "open", "filled", "aside", "rejected", "moves"), sum),
    **dict.fromkeys(("low_orders", "first_orders"), _orders(lowest)),
    **dict.fromkeys(("high_orders", "rejected_orders"), _orders(highest)),
    **dict.fromkeys(("newest", "rejected_newest"), latest),
    **dict.fromkeys(("tables", "schemas"), _ends),
    "events": _events,
    "stretches": joined,
}


def stretches(batch: pa.RecordBatch, epoch: int) -> dict[str, list[Stretch]]:
    """Return the changes of each partition, cut where a newer change has a lower position than an earlier one."""
    parts = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in ORDER_PARTS}
    is_placed = parts["pos"] != parts["ord"].astype(parts["pos"].dtype)
    rises = (parts["rank"] == RANK_CHANGE) & is_placed
    by_partition: dict[str, list[Stretch]] = {}
    for name, places in _by_partition(batch, rises):
        places = places[np.argsort(parts["arrival"][places], kind="stable")]
        times, positions = parts["time_ms"][places], parts["pos"][places]
        newer = times[1:] > np.maximum.accumulate(times)[:-1]
        lower = positions[1:] < np.maximum.accumulate(positions)[:-1]
        for there in np.split(places, np.flatnonzero(newer & lower)[:1] + 1):
            ends = (there[0], there[parts["time_ms"][there].argmax()], there[parts["pos"][there].argmax()])
            keys = [order_key(epoch, *(int(parts[part][place]) for part in ORDER_PARTS)) for place in ends]
            by_partition.setdefault(name, []).append(keys)
    return by_partition


def first_orders(batch: pa.RecordBatch, epoch: int) -> dict[str, str]:
    """Return the lowest order key of each partition of a batch that is not folded yet."""
    parts = [batch.column(name).to_numpy(zero_copy_only=False) for name in ORDER_PARTS]
    events = pc.not_equal(batch.column("op"), "x").to_numpy(zero_copy_only=False)
    lowest = {}
    for name, places in _by_partition(batch, events):
        for part in parts:
            places = places[part[places] == part[places].min()]
        lowest[name] = order_texts(epoch, *(part[places[:1]] for part in parts))[0].as_py()
    return lowest


def _by_partition(batch: pa.RecordBatch, chosen: np.ndarray[Any, Any]) -> Iterable[tuple[str, np.ndarray[Any, Any]]]:
    """Yield the places of the chosen rows, by partition."""
    partitions = batch.column("partition").dictionary_encode()
    codes = partitions.indices.to_numpy(zero_copy_only=False)
    for code, name in enumerate(partitions.dictionary.to_pylist()):
        places = np.flatnonzero(chosen & (codes == code))
        if len(places):
            yield name, places


def of_rejected(batch: pa.RecordBatch) -> Facts:
    """Return the facts of rejected events that are not folded yet."""
    orders = batch.column("rejected").field("order").to_pylist()
    high = highest(zip(batch.column("partition").to_pylist(), orders, strict=True))
    newest = pc.max(batch.column("time_us")).as_py()
    return Facts(rejected=batch.num_rows, rejected_orders=high, rejected_newest=newest)


def measured(connection: duckdb.DuckDBPyConnection, table: str, *, folded: bool) -> Facts:
    """Measure a table of the engine's layout with order keys, registered in DuckDB.

    :param folded: it has one row per key, so lone tombstones can be counted.
    """
    sums = ", ".join(f"coalesce(sum({count}), 0)::BIGINT" for count in COUNTS)
    rows: list[Any] = connection.execute(
        f"""SELECT "partition", max("order") FILTER (op != 'x'), min("order") FILTER (op != 'x'),
          count(*) FILTER (op != 'x'), count(open), max(time_us),
          count(*) FILTER (n_x > 0 AND n_d = 0), count(*) FILTER (op = 'd'), {sums}
        FROM {table} GROUP BY "partition" """
    ).fetchall()
    return Facts(
        keys=sum(row[3] for row in rows),
        deletes=sum(row[7] for row in rows),
        events={op: sum(row[8 + i] for row in rows) for i, op in enumerate((*OPS, "x"))},
        lone=sum(row[6] for row in rows) if folded else 0,
        open=sum(row[4] for row in rows),
        low_orders={row[0]: row[2] for row in rows if row[2]},
        high_orders={row[0]: row[1] for row in rows if row[1]},
        newest=max((row[5] for row in rows if row[5] is not None), default=None),
    )
