"""Messages among events of one shape are read as if each came alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakecdc.contract.target import Target
from lakecdc.ingest.engine import events
from lakecdc.ingest.engine.decoder import Decoder
from lakecdc.ingest.engine.decoding import Decoding
from lakecdc.ingest.envelopes import json_values
from lakecdc.ingest.formats.values import Field
from tests.lakecdc.ingest.engine.decodings import decoding_of
from tests.lakecdc.ingest.engine.structs import read_as_structs

FIELDS = (Field("id", "bigint"), Field("n", "double"), Field("v", "string"), Field("d", "string", "variable_decimal"))
TARGET = Target("test.t", key=("id",), source_table="t", exclude_columns=("ignored",))
DECODING = decoding_of(FIELDS, target=TARGET)
MESSAGES = pa.schema(
    {
        **{"value": pa.binary(), "key": pa.binary(), "topic": pa.string(), "partition": pa.int32()},
        **{"arrival": pa.int64(), "timestamp": pa.timestamp("us", "UTC")},
        "headers": pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})),
    }
)
SOURCE = {"connector": "postgresql", "db": "x", "schema": "s", "table": "t", "snapshot": "false", "lsn": 50}
SOURCE |= {"ts_ms": 1_700_000_000_123, "sequence": '["49","50"]'}


def event(op: str = "u", row: Any = None, before: Any = None, source: Any = None, **more: Any) -> dict[str, Any]:
    row = {"id": 1, "n": 1.5, "v": "x", "d": None, **(row or {})}
    after = None if op == "d" else row
    return {"before": before, "after": after, "source": {**SOURCE, **(source or {})}, "op": op, "ts_ms": 5, **more}


def text(*given: Any, **more: Any) -> str:
    return json.dumps(event(*given, **more), ensure_ascii=False, separators=(",", ":"))


def rows(lines: Sequence[str | bytes], decoding: Decoding = DECODING, **columns: Any) -> list[str]:
    """Decode messages and return the rows in order of their places, each as comparable text."""
    count = len(lines)
    values = [line.encode("utf-8", "surrogatepass") if isinstance(line, str) else line for line in lines]
    cells = {"value": values, "topic": ["x.s.t"] * count, "partition": [0] * count, "arrival": list(range(count))}
    cells |= columns
    table = pa.table([pa.array(cells.get(f.name, [None] * count), f.type) for f in MESSAGES], schema=MESSAGES)
    batches = Decoder(decoding).decode(table.to_batches())
    decoded = [row for batch in batches for row in batch.to_pylist()]
    return [repr(row) for row in sorted(decoded, key=lambda row: (row["arrival"], row["op"]))]


def check(lines: Sequence[str | bytes], decoding: Decoding = DECODING, *, most: int = 0, **columns: Any) -> list[str]:
    """Compare with reading one message after the other; return the rows.

    :param most: how many of them are read as structs.
    """
    with read_as_structs() as counts:
        both = rows(lines, decoding, **columns)
    with patch.object(events, "can_be_alike", lambda event: False):
        each = rows(lines, decoding, **columns)
    assert both == each
    assert sum(counts) == most or not most, sum(counts)
    return each


PLAIN = [text("c"), text("u", {"v": "y"}, before={"id": 1}), text("d", before={"id": 2}), text("r")]

#: messages of another shape, for various reasons
ODD: dict[str, str | bytes] = {
    "a member twice": text().replace('"v":"x"', '"v":"x","v":"y"'),
    "a member twice, escaped": text().replace('"v":"x"', '"v":"x","\\u0076":"y"'),
    "a member twice, with a space": text().replace('"v":"x"', '"v" :"x","v":"y"'),
    "a member of the source twice": text().replace('"lsn":50', '"lsn":50,"lsn":51'),
    "a row twice": text().replace('"op":', '"after":null,"op":'),
    "another object twice": text().replace('"ts_ms":5', '"ts_ms":{"a":1,"a":2}'),
    "negative zeros": text(row={"n": 0, "id": 0}).replace('"n":0', '"n":-0').replace('"id":0', '"id": -0'),
    "a new column": text(row={"new": 1}),
    "a column less": text().replace(',"v":"x"', ""),
    "another order": json.dumps(dict(reversed(event().items()))),
    "a nested value": text(row={"v": {"a": 1}}),
    "a nested value with a member twice": text().replace('"x"', '{"a":1,"a":2}'),
    "deep arrays": text().replace('"x"', "[" * 400 + "]" * 400),
    "deeper arrays": text().replace('"x"', "[" * 3000 + "]" * 3000),
    "text that is JSON": text(row={"v": '{"a": "b", "-0":-0}'}),
    "text with quotes": text(row={"v": 'say "a": b "c" :d \\" : \\\\": x'}),
    "another table": text(source={"table": "other"}),
    "another database": text(source={"db": "other", "schema": None}),
    "another connector": text(source={"connector": "mysql", "file": "binlog.000003", "pos": 7, "row": 1}),
    "an lsn that is text": text(source={"lsn": "7"}),
    "an lsn of more than 63 bits": text(source={"lsn": 2**63}),
    "an lsn below zero": text(source={"lsn": -1}),
    "an lsn that is true": text(source={"lsn": True}),
    "no lsn": text(source={"lsn": None, "commit_lsn": "00000027:00000758:0005"}),
    "no sequence": text(source={"sequence": None}),
    "another sequence": text(source={"sequence": '["9999999999999999999","50"]'}),
    "a long sequence": text(source={"sequence": '["9223372036854775807","50"]'}),
    "an odd sequence": text(source={"sequence": "[null]"}),
    "a snapshot": text(source={"snapshot": "first"}),
    "an incremental snapshot": text(source={"snapshot": "incremental"}),
    "a snapshot that is true": text(source={"snapshot": True}),
    "a late time": text(source={"ts_ms": 2**62}),
    "an early time": text(source={"ts_ms": -5}),
    "microseconds": text(source={"ts_us": 77}),
    "a transaction": text(transaction={"id": "1", "total_order": 1}),
    "a separate schema": text(schema={"a": 1}),
    "a delete without key": text("d"),
    "a delete with a row": json.dumps(event("d", before={"id": 1}) | {"after": {"id": 4, "n": 1, "v": "x", "d": None}}),
    "an insert without row": json.dumps(event("c") | {"after": None}),
    "a moved row": text("u", {"id": 9}, before={"id": 8}),
    "a moved row, of text": text("u", {"id": 9}, before={"id": "8"}),
    "the same key as text": text("u", {"id": 9}, before={"id": "9"}),
    "an unknown op": text("q"),
    "a TRUNCATE": json.dumps(event("t") | {"after": None}),
    "a placeholder": text("u", {"v": "__gone"}),
    "a variable decimal": text("u", {"d": {"scale": 1, "value": "ew=="}}),
    "a long number": text().replace("1.5", "1.50000000000000000000001"),
    "a huge exponent": text().replace("1.5", "1e300000"),
    "a number of many digits": text(row={"id": 10**30}),
    "half a surrogate": text().replace('"x"', '"\\ud83d"'),
    "bytes that are not UTF-8": text().encode().replace(b'"x"', b'"\xff"'),
    "a row of another type": json.dumps({**event(), "after": "x", "before": [1]}),
    "an empty row": json.dumps({**event(), "after": {}}),
    "an odd name": text("u", {'ignored"': None, "a\\": None, "b\n": None}, before={"id": 1, '"': 1}),
    "a null character": text(row={"v": "a\0b"}),
    "text": '"x"',
    "two events": text() + text(),
    "broken": text()[:-1],
    "nothing": "",
    "an empty object": "{}",
    "wrapped": json.dumps({"schema": None, "payload": event()}),
    "wrapped, with an event's members": json.dumps({**event(), "schema": None, "payload": event()}),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("sets_aside", [False, True])
def test_messages_of_another_shape_are_read_as_if_alone(name: str, sets_aside: bool) -> None:
    decoding = replace(DECODING, sets_aside=sets_aside, rejects=sets_aside)
    check([*PLAIN, ODD[name], *PLAIN], decoding)
    # as the first message
    check([ODD[name], *PLAIN, ODD[name]], decoding)


def test_events_are_read_as_structs() -> None:
    check(PLAIN, most=len(PLAIN))
    many = [text(row={"id": n}, source={"lsn": n + 1}) for n in range(3 * json_values.TOGETHER + 5)]
    check(many, most=len(many))
    # a message of another shape affects only itself
    check([*many[:700], ODD["a member twice"], *many[700:], "{"], most=len(many))


def test_members_within_values_are_counted() -> None:
    decimals = [text("u", {"d": {"scale": 1, "value": "ew=="}}, before={"id": 1}), text("u", {"d": None})]
    check([*decimals, text("c", {"d": {"scale": 1, "value": "ew==", "value_": 1}})], most=3)
    transactions = [text(transaction={"id": str(n), "total_order": n}) for n in range(3)]
    check([*transactions, text(transaction=None)], most=4)
    check([*decimals, text().replace('"d":null', '"d":{"scale":1,"scale":1,"value":"ew=="}')], most=2)


def test_events_of_other_databases_are_read_as_structs() -> None:
    binlog = {"connector": "mysql", "db": "s", "schema": None, "lsn": None, "sequence": None}
    lines = [text(source={**binlog, "file": "binlog.000003", "pos": n, "row": n % 2}) for n in range(9)]
    check(lines, most=9)
    servers = [text(source={"lsn": None, "commit_lsn": f"00000027:00000758:000{n}"}) for n in range(9)]
    check(servers, most=9)


def test_members_may_change_within_a_topic() -> None:
    wide = [text(row={"ignored": n}) for n in range(50)]
    lines = [*PLAIN, *wide] * 20
    check(lines)


@pytest.mark.parametrize("count", [61, 1000])
def test_columns_may_come_in_any_order(count: int) -> None:
    names = [f"c{n}" for n in range(count - 4)] + ["class", "a-b", "__post_init__", "é"]
    decoding = replace(DECODING, fields=(Field("id", "bigint"), *(Field(name, "string") for name in names)))
    images = [{"id": n, **{name: f"{name}{n}" for name in names}} for n in range(3)]
    lines = [json.dumps({**event(), "after": image}) for image in images]
    check(lines, decoding, most=3)
    check([json.dumps({**event(), "after": dict(reversed(image.items()))}) for image in images], decoding, most=3)


def test_kafka_keys_headers_and_topics_are_read() -> None:
    keyless = replace(TARGET, key=())
    decoding = replace(DECODING, keyed=True, sets_aside=True, rejects=True, target=keyless)
    lines = [*PLAIN, ODD["a delete without key"], *PLAIN, text(), text(), ""]
    keys = [b'{"id":7}'] * 9 + [b'{"other":7}', b"{", b'{"id":7}']
    headers = [None] * 8 + [[{"key": "__debezium.oldkey", "value": b'{"id":3}'}]] + [None] * 3
    for routed in (False, True):
        topics = ["x.s.t"] * 6 + [None, "other"] + ["x.s.t"] * 4
        check(
            lines,
            replace(decoding, reading=replace(decoding.reading, routed=routed)),
            key=keys,
            headers=headers,
            topic=topics,
        )


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**20), 10**20), st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(codec="utf-8"), max_size=12), st.sampled_from(["-0", "7", "1.50", 'a":b', '"', "\\", "\\\\"]),
)  # fmt: skip
IMAGES = st.fixed_dictionaries({"id": VALUES, "n": VALUES, "v": VALUES, "d": VALUES}, optional={"ignored": VALUES})
SOURCES = st.dictionaries(
    st.sampled_from(["lsn", "ts_ms", "ts_us", "snapshot", "sequence", "table", "row"]), VALUES, max_size=2
)
EVENTS = st.builds(
    lambda op, row, before, source, spaced: json.dumps(
        event(op, row, before, source), ensure_ascii=False, separators=(", ", " : ") if spaced else (",", ":")
    ),
    st.sampled_from("crud"), IMAGES, st.none() | IMAGES, SOURCES, st.booleans(),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(EVENTS, max_size=6), st.randoms(use_true_random=False))
def test_random_events_among_plain_ones_are_read(events: list[str], rng: Any) -> None:
    lines = [*PLAIN, *events]
    rng.shuffle(lines)
    check(lines, replace(DECODING, rejects=True, sets_aside=True))
