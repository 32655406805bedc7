"""Columns of the engine's tables, within tasks and between them.

==================  ====================================================================================
``op``              ``r``, ``c``, ``u``, ``d``, or ``x`` for a tombstone
``k0`` …            the key
``c0`` …            the row; for a delete the values in its message
``open``            names of columns with a placeholder for "unchanged"; null if none
``moved``, ``o0`` … whether the event changed the row's key, and the old key
``pos`` … ``arrival``  parts of the order key, see :data:`ORDER_PARTS`; those of a tombstone are below all others
``order``           the order key, which replaces its parts after all comparisons
``time_us``         source time, microseconds since 1970, or null
``partition``       ``topic/partition``
``n_r`` … ``n_x``   events of the key by op
``p0`` …            partition values of the key in the target, if the engine knows the transforms
==================  ====================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecdc.ingest.envelopes import debezium
from lakecdc.ingest.envelopes.message import Place
from lakecdc.model.columns import arrow_type
from lakecdc.model.order import EVENT_DIGITS, LAST_TIME, RANK_CHANGE, RANK_READ, WIDTH
from lakecdc.sql import quoted_column

Numbers = np.ndarray[Any, Any]
# the start of Postgres' ``sequence``, with as many digits as always fit into 63 bits
_COMMIT_LSN = r'^\["0*(?P<lsn>[0-9]{1,18})"'

OPS = "rcud"
COUNTS = tuple(f"n_{op}" for op in (*OPS, "x"))
#: position, ordinal, rank, source time in milliseconds, place of arrival: integers, compared in this order
ORDER_PARTS = ("pos", "ord", "rank", "time_ms", "arrival")
#: columns that a task adds to a rejected message besides its key, with Spark SQL types
REJECTED_TYPES = {
    **dict.fromkeys(("rule", "reason", "source_table", "order"), "string"),
    "source_time": "timestamp",
}
#: further columns of decoded events: why an event is set aside, why it is rejected, its message if it is either, and
#: its source table
CHECKS = ("odd", "rejected", "message", "source_table")
# their ends in an order key, after the epoch
_ENDS = (4, 20, 36, 37, EVENT_DIGITS, WIDTH)


def events_schema(columns: Mapping[str, pa.DataType], key: Sequence[str]) -> pa.Schema:
    """Return the columns of events with order keys in parts, without partition values."""
    numbers = {"pos": pa.uint64(), **dict.fromkeys(("ord", "time_ms", "arrival", "time_us"), pa.int64())}
    fields = {
        "op": pa.string(),
        **{f"k{i}": columns[name] for i, name in enumerate(key)},
        **{f"c{i}": kind for i, kind in enumerate(columns.values())},
        "open": pa.list_(pa.string()),
        "moved": pa.bool_(),
        **{f"o{i}": columns[name] for i, name in enumerate(key)},
        **numbers,
        "rank": pa.int8(),
        "partition": pa.string(),
        **dict.fromkeys(COUNTS, pa.int32()),
    }
    return pa.schema(list(fields.items()))


def decoded_schema(columns: Mapping[str, pa.DataType], key: Sequence[str], message: pa.DataType) -> pa.Schema:
    """Return the columns of decoded events, with :data:`CHECKS`."""
    # Spark cannot store a struct without fields
    of_key = pa.struct([(f"k{i}", columns[name]) for i, name in enumerate(key)] or [("none", pa.string())])
    rejected = {**{name: arrow_type(kind) for name, kind in REJECTED_TYPES.items()}, "key": of_key}
    kinds = (pa.string(), pa.struct(list(rejected.items())), message, pa.string())
    return pa.schema([*events_schema(columns, key), *zip(CHECKS, kinds, strict=True)])


def places_back(places: Sequence[int], count: int) -> pa.Array:
    """Return indices that spread the values of some rows over all rows; null for all others."""
    index = np.full(count, -1)
    index[places] = np.arange(len(places))
    return pa.array(index, mask=index < 0)


def rejected_column(
    reasons: Mapping[int, tuple[str, str]], columns: Mapping[str, pa.Array], kind: pa.StructType, epoch: int
) -> pa.Array:
    """Return the column ``rejected`` of events.

    :param reasons: rule and reason of rejected events, by place.
    :param columns: columns of all events, in the engine's layout with ``source_table``.
    """
    rows = sorted(reasons)
    places, of_key = pa.array(rows, pa.int64()), kind.field("key").type
    keys = [columns[f.name].take(places) if f.name in columns else pa.nulls(len(rows), f.type) for f in of_key]
    parts = (columns[name].take(places).to_numpy(zero_copy_only=False) for name in ORDER_PARTS)
    values = {
        "rule": pa.array([reasons[row][0] for row in rows], pa.string()),
        "reason": pa.array([reasons[row][1] for row in rows], pa.string()),
        "source_table": columns["source_table"].take(places),
        "order": order_texts(epoch, *parts),
        "source_time": columns["time_us"].take(places).cast(pa.timestamp("us", "UTC")),
        "key": pa.StructArray.from_arrays(keys, fields=list(of_key)),
    }
    rejected = pa.StructArray.from_arrays([values[f.name] for f in kind], fields=list(kind))
    return rejected.take(places_back(rows, len(columns["op"])))


def order_parts(order: str) -> dict[str, int]:
    bounds = zip(_ENDS, _ENDS[1:], strict=False)
    return {name: int(order[begin:end], 16) for name, (begin, end) in zip(ORDER_PARTS, bounds, strict=True)}


def without_void(batch: pa.RecordBatch, truncate_order: str | None) -> pa.RecordBatch:
    """Remove the events that a TRUNCATE makes void (:func:`lakecdc.model.order.void_sql`), except rejected ones.

    :param batch: events in the engine's layout, not folded yet, with :data:`CHECKS`.
    """
    if truncate_order is None:
        return batch
    parts = order_parts(truncate_order)
    at = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in ORDER_PARTS}
    lower, same = np.zeros(len(batch), np.bool_), np.ones(len(batch), np.bool_)
    for name in ORDER_PARTS:
        lower |= same & (at[name] < parts[name])
        same &= at[name] == parts[name]
    placeless = (at["pos"] == 0) & (at["rank"] == RANK_READ) & (at["time_ms"] > parts["time_ms"])
    stays = ~lower | placeless | batch.column("rejected").is_valid().to_numpy(zero_copy_only=False)
    return batch.filter(pa.array(stays))


def with_order(table: pa.Table, epoch: int) -> pa.Table:
    """Replace the parts of the order key by the order key."""
    parts = [table[name].to_numpy() for name in ORDER_PARTS]
    return table.drop_columns(list(ORDER_PARTS)).append_column("order", order_texts(epoch, *parts))


def order_texts(
    epoch: int,
    position: Numbers,
    ordinal: Numbers,
    rank: Numbers,
    time_ms: Numbers,
    arrival: Numbers,
) -> pa.Array:
    """Return order keys as ``model.order.order_key`` does, for whole columns.

    :param epoch: 0 to 65535.
    :param position: unsigned 64 bits; the others are from 0 to below 2 to the 63rd, times below 2 to the 48th.
    """
    count = len(position)
    text = np.empty((count, WIDTH), np.uint8)
    text[:, :4] = np.frombuffer(f"{epoch:04x}".encode(), np.uint8)
    text[:, 4:20], text[:, 20:36] = _hex(position), _hex(ordinal)
    text[:, 36] = np.frombuffer(b"0123456789abcdef", np.uint8)[rank]
    text[:, 37:49], text[:, 49:] = _hex(time_ms)[:, 4:], _hex(arrival)
    offsets = np.arange(0, WIDTH * (count + 1), WIDTH, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(text)])


def _hex(numbers: Numbers) -> Numbers:
    words = np.ascontiguousarray(numbers).astype(">i8").view(">u2")
    return _four_digits()[words].view(np.uint8).reshape(-1, 16)


@cache
def _four_digits() -> Numbers:
    return np.frombuffer(b"".join(b"%04x" % number for number in range(65536)), np.uint32)


def struct_type(types: Mapping[str, str]) -> str:
    """Return the Spark SQL type of a struct; an empty one has the member ``none``, because Spark cannot store it."""
    members = ", ".join(f"{quoted_column(name)}: {kind}" for name, kind in types.items())
    return f"struct<{members or 'none: string'}>"


def change_schema(types: Mapping[str, str], key: Sequence[str]) -> str:
    """Return the Spark SQL schema of the columns ``op, key, row, open, old_key`` of a change frame."""
    of_key = struct_type({name: types[name] for name in key})
    return f"op string, key {of_key}, row {struct_type(types)}, open array<string>, old_key {of_key}"


def struct_of(columns: Sequence[tuple[str, pa.Array]], count: int, mask: pa.Array | None = None) -> pa.Array:
    """Return a struct of named columns with the type of :func:`struct_type`; null where the mask is true."""
    named = columns or [("none", pa.nulls(count, pa.string()))]
    return pa.StructArray.from_arrays([values for _, values in named], [name for name, _ in named], mask=mask)


@dataclass(frozen=True)
class Places:
    """Places of events, see :class:`~lakecdc.ingest.envelopes.message.Place`; times may be null."""

    positions: Numbers
    ordinals: Numbers
    ranks: Numbers
    times: pa.Array

    @classmethod
    def of(cls, places: Sequence[Place]) -> Places:
        return cls(
            np.array([place.position for place in places], np.uint64),
            np.array([place.ordinal for place in places], np.int64),
            np.array([place.rank for place in places], np.int8),
            pa.array([place.time_us for place in places], pa.int64()),
        )

    @classmethod
    def of_lsns(
        cls, lsns: Sequence[int], commits: Sequence[str] | None, reads: Sequence[bool], times: pa.Array
    ) -> Places:
        """Return the places of Postgres' events, as :func:`debezium.place` does.

        :param lsns: of 63 bits.
        :param commits: ``sequence`` of each event; None if they have none.
        :param reads: whether a snapshot read the row.
        """
        ordinals = np.array(lsns, np.int64)
        ranks = np.where(reads, RANK_READ, RANK_CHANGE).astype(np.int8)
        positions = ordinals if commits is None else _commits(commits, ordinals)
        return cls(positions.astype(np.uint64), ordinals, ranks, times)

    def order_parts(self, arrivals: Numbers) -> dict[str, Numbers]:
        """Return the parts of order keys, ``layout.ORDER_PARTS``, given the places of arrival."""
        times = self.times.fill_null(0).to_numpy(zero_copy_only=False)
        # cut as in :meth:`Place.order`
        millis = np.clip(times // 1000, 0, LAST_TIME)
        return dict(zip(ORDER_PARTS, (self.positions, self.ordinals, self.ranks, millis, arrivals), strict=True))


def _commits(sequences: Sequence[str], lsns: Numbers) -> Numbers:
    matches = pc.extract_regex(pa.array(sequences, pa.string()), _COMMIT_LSN)
    known = pc.struct_field(matches, "lsn").cast(pa.int64())
    positions: Numbers = known.fill_null(0).to_numpy(zero_copy_only=False).copy()
    for number in np.flatnonzero(~known.is_valid().to_numpy(zero_copy_only=False)).tolist():
        position = debezium.commit_lsn(sequences[number])
        positions[number] = lsns[number] if position is None else position
    return positions
