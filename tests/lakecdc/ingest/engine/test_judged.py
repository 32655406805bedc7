"""After a first pass, each message is an event, rejected, or another table's; none is set aside."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lakecdc.ingest.engine.decoder import Decoder
from lakecdc.ingest.engine.decoding import Judged
from lakecdc.ingest.engine.envelope_reader import EnvelopeReader
from lakecdc.ingest.engine.layout import ORDER_PARTS
from lakecdc.ingest.formats.envelope import Reading
from lakecdc.ingest.formats.message_columns import PLACED
from lakecdc.ingest.formats.values import Field
from lakecdc.model.order import order_key
from tests.lakecdc.ingest.engine.decodings import decoding_of

Row = dict[str, Any]
FIELDS = (Field("id", "bigint"), Field("v", "string"), Field("n", "decimal(12,3)", "decimal_bytes", 2))
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def message(value: Any, key: Any = None, offset: int = 0, old: Any = None, placed: str | None = None) -> Row:
    of_old = [] if old is None else [{"key": "__debezium.oldkey", "value": json.dumps(old).encode()}]
    return {
        **{"topic": "db.shop.t", "partition": 1, "offset": offset, "timestamp": 1_700_000_000_000_000},
        "key": None if key is None else json.dumps(key).encode(),
        "value": value if isinstance(value, bytes) else None if value is None else json.dumps(value).encode(),
        **{"headers": of_old or None, "arrival": offset, "place": f"db.shop.t/1@{offset}", PLACED: placed},
    }


def event(op: str, row: Row, before: Row | None = None, table: str = "t", lsn: int = 7) -> Row:
    source = {"connector": "postgresql", "schema": "shop", "table": table, "lsn": lsn, "ts_ms": 5}
    return {"op": op, "before": row if op == "d" else before, "after": None if op == "d" else row, "source": source}


def with_schema(payload: Row, scale: int) -> Row:
    price = {"field": "n", "type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "version": scale}
    price["parameters"] = {"scale": str(scale), "connect.decimal.precision": "12"}
    fields = [{"field": "id", "type": "int64"}, {"field": "v", "type": "string"}, price]
    return {"schema": {"type": "struct", "fields": [{"field": "after", "fields": fields}]}, "payload": payload}


def decode(
    messages: Sequence[Row], fields: Sequence[Field] = FIELDS, *, fold_case: bool = False, tables: Any = ("shop.t",)
) -> list[Row]:
    kinds = {
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
    }
    kinds |= {"key": pa.binary(), "value": pa.binary(), "headers": HEADERS, "arrival": pa.int64()}
    kinds |= {"place": pa.string(), PLACED: pa.string()}
    table = pa.table({name: pa.array([m[name] for m in messages], kind) for name, kind in kinds.items()})
    reader = EnvelopeReader("debezium-json", Reading(1), (), fold_case=fold_case)
    texts = {json.dumps(m["schema"]) for m in (json.loads(m["value"]) for m in messages if _is_wrapped(m))}
    encoded: dict[str, dict[str, Field]] = {}
    for text in texts:
        (column,) = (f for f in reader.columns_of(text) if f.name == "n")
        if column.scale != 2:
            encoded.setdefault("n", {})[text] = replace(column, type="decimal(12,3)", scale=column.scale)
    judged = Judged(reader.read, frozenset(tables), encoded)
    decoding = decoding_of(tuple(fields), keyed=True, rejects=True, judged=judged)
    batches = list(Decoder(decoding).decode(table.to_batches()))
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert all(row["odd"] is None for row in rows)
    return rows


def _is_wrapped(message: Row) -> bool:
    return message["value"] is not None and b'"schema": {"type"' in message["value"]


def money(unscaled: int) -> str:
    return b64encode(unscaled.to_bytes(4, "big", signed=True)).decode()


def test_each_schema_may_encode_a_column_differently() -> None:
    messages = [
        message(with_schema(event("c", {"id": n, "v": "x", "n": money(12500)}), scale), offset=n)
        for n, scale in enumerate((2, 3, 2, 3))
    ]
    assert [row["c2"] for row in decode(messages)] == [Decimal("125.000"), Decimal("12.500")] * 2
    # with one encoding for all messages, the table's columns define it
    assert decode(messages[:1])[0]["c2"] == Decimal("125.000")


def test_unreadable_and_misfitting_messages_are_rejected() -> None:
    messages = [
        message(event("c", {"id": 1, "v": "x"}), offset=0),
        message(b"{broken", {"id": 2}, offset=1),
        message(event("c", {"id": "y", "n": "z"}), offset=2),
        message(event("c", {"v": "x"}), {"id": 3}, offset=3),
        message(event("c", {"v": "x"}), offset=4),
        message(event("c", {"id": 5, "": "x"}), offset=5),
    ]
    rows = decode(messages, tables=("shop.t", "db.shop.t"))
    rejected = [row["rejected"] and (row["rejected"]["rule"], row["rejected"]["key"]["k0"]) for row in rows]
    assert rejected == [None, ("not-json", None), ("type", None), None, ("no-key", None), ("bad-name", 5)]
    assert rows[2]["rejected"]["reason"] == "values do not fit their columns: id (bigint), n (decimal(12,3))"
    assert [row["k0"] for row in rows if row["rejected"] is None] == [1, 3]
    rejected_messages = [(row["message"]["value"], row["message"]["offset"]) for row in rows if row["rejected"]]
    assert rejected_messages == [(messages[n]["value"], n) for n in (1, 2, 4, 5)]
    assert rows[4]["rejected"]["order"] == order_key(1, 7, 7, 8, 5, 4)


def test_events_of_other_tables_and_without_rows_are_skipped() -> None:
    others = [event("c", {"id": 2}, table="u"), event("t", {}), {"op": "m", "source": {}}, None, {"ts_ms": 5}]
    rows = decode([message(event("c", {"id": 1})), *map(message, others)])
    assert [row["k0"] for row in rows] == [1]
    # a topic that the first pass has assigned to the table
    rows = decode([message({"op": "z"}), message(event("c", {"id": 1}, table="u"))], tables=("db.shop.t",))
    assert [row["rejected"]["rule"] for row in rows] == ["unknown-message"]


def test_a_placed_tombstone_deletes_its_key_at_its_place() -> None:
    order = order_key(1, 9, 8, 0, 6, 2**40)
    tombstone, passed_over = message(None, {"id": 4}, placed=order), message(None, {"id": 5})
    (row,) = decode([tombstone, passed_over])
    assert (row["op"], row["k0"], row["n_d"], row["source_table"]) == ("d", 4, 1, None)
    assert [row[part] for part in ORDER_PARTS] == [9, 8, 0, 6, 2**40]
    (row,) = decode([message(None, {"other": 4}, placed=order)])
    assert (row["rejected"]["rule"], row["rejected"]["order"]) == ("no-key", order)


def test_the_message_key_replaces_an_unfit_key_of_a_delete() -> None:
    rows = decode([message(event("d", row), {"id": 6}) for row in ({"id": "x"}, {"id": None}, {"v": "y"}, {"id": 7})])
    assert [(row["op"], row["k0"]) for row in rows] == [("d", 6)] * 3 + [("d", 7)]


@pytest.mark.parametrize("linked", [False, True])
def test_an_update_that_changes_the_key_is_two_events(linked: bool) -> None:
    old = {"id": 3} if linked else None
    deleted, row = decode([message(event("u", {"id": 1, "v": "x"}, {"id": 2}), old=old)])
    # the old key in the message's header comes first
    was = 3 if linked else 2
    assert (deleted["op"], deleted["k0"], deleted["c1"]) == ("d", was, None)
    assert (row["op"], row["k0"], row["moved"], row["o0"]) == ("u", 1, True, was)
    # a value that cannot be a key was not the key of a row
    assert [row["moved"] for row in decode([message(event("u", {"id": 1}, {"id": [2]}))])] == [False]
    (rejected,) = decode([message(event("u", {"id": 1, "n": "x"}, {"id": 2}))])
    assert rejected["rejected"]["rule"] == "type" and not rejected["moved"]


def test_names_may_differ_in_case() -> None:
    messages = [message(event("c", {"ID": 1, "V": "x"})), message(event("d", {}), {"Id": 2})]
    assert [(row["k0"], row["c1"]) for row in decode(messages, fold_case=True)] == [(1, "x"), (2, None)]
    reason = decode(messages[:1])[0]["rejected"]["reason"]
    assert reason == "no value for the key columns id; it has ID, and names are case-sensitive"
