"""Events of every format are decoded, or set aside with a reason."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from lakecdc.contract.target import Target
from lakecdc.ingest.engine.decoder import Decoder
from lakecdc.ingest.engine.envelope_reader import EnvelopeReader
from lakecdc.ingest.engine.layout import ORDER_PARTS
from lakecdc.ingest.engine.message_facts import message_facts
from lakecdc.ingest.engine.run import Scan
from lakecdc.ingest.formats.envelope import Reading
from lakecdc.ingest.formats.values import Field
from tests.lakecdc.ingest.engine.decodings import decoding_of

Row = dict[str, Any]
FIELDS = (Field("id", "bigint"), Field("v", "string"), Field("n", "double"))
PLAIN: Row = {"id": 1, "v": "x", "n": 1.5}


def run(name: str, messages: list[Any], **rest: Any) -> list[Row]:
    target = Target("test.t", **{"key": ("id",), "source_table": "t", **rest.pop("target", {})})
    decoding = decoding_of(rest.pop("fields", FIELDS), name, target, **rest)
    lines = [m if isinstance(m, str) else json.dumps(m) for m in messages]
    table = pa.table({"value": lines, "arrival": pa.array(range(len(lines)), pa.int64())})
    batches = list(Decoder(decoding).decode(table.to_batches()))
    return [row for batch in batches for row in batch.to_pylist()]


def odd(name: str, message: Any, **rest: Any) -> str:
    return str(next(row["odd"] for row in run(name, [message], **rest) if row["odd"] is not None))


def flat(row: Row, **facts: Any) -> Row:
    return {**row, "__op": "u", "__table": "t", "__lsn": 5, "__source_ts_ms": 7, "__deleted": "false", **facts}


def debezium(row: Row, op: str = "c", **more: Any) -> Row:
    source = {"connector": "postgresql", "schema": "d", "table": "t", "lsn": 5, "ts_ms": 7}
    return {"op": op, "before": None, "after": row, "source": source, **more}


def maxwell(row: Row, kind: str = "insert", **more: Any) -> Row:
    return {"database": "d", "table": "t", "type": kind, "ts": 5, "xid": 7, "commit": True, "data": row, **more}


def canal(row: Row, kind: str = "INSERT", **more: Any) -> Row:
    types = {"id": "bigint", "v": "text", "n": "double"}
    place = {"database": "d", "table": "t", "es": 5000, "ts": 6000, "id": 3, "isDdl": False, "sql": ""}
    return {**place, "type": kind, "mysqlType": types, "data": [row], "old": None, **more}


def ogg(row: Row, kind: str = "I", **more: Any) -> Row:
    return {"table": "d.t", "pos": "0000012", "op_type": kind, "op_ts": "2024-01-02 03:04:05.6", "after": row, **more}


def dms(row: Row, operation: str = "insert", **more: Any) -> Row:
    about = {"record-type": "data", "operation": operation, "schema-name": "d", "table-name": "t"}
    return {"data": row, "metadata": {**about, "timestamp": "2024-01-02T03:04:05.6Z", **more}}


MAKE = {"debezium-flat-json": flat, "maxwell-json": maxwell, "canal-json": canal, "ogg-json": ogg, "dms-json": dms}
EACH = {**MAKE, "json": lambda row: row, "debezium-json": lambda row: debezium(row)}


@pytest.mark.parametrize("name", EACH)
def test_values_that_no_column_can_store_are_set_aside(name: str) -> None:
    make = EACH[name]
    assert [row["k0"] for row in run(name, [make(PLAIN), make({**PLAIN, "id": 2})])] == [1, 2]
    for broken in ({**PLAIN, "id": None}, {**PLAIN, "id": 1.5}, {**PLAIN, "n": "x"}):
        odd(name, make(broken))
    for text in ("[1]", "5", '"x"', "{broken", '{"a":1,}', "{}"):
        odd(name, text)


@pytest.mark.parametrize("name", EACH)
def test_equal_values_of_another_type_are_accepted(name: str) -> None:
    make = EACH[name]
    for row, values in (
        ({"id": "1", "v": 1.50, "n": "2.5"}, (1, "1.5", 2.5)),
        ({"id": 1.0, "v": {"a": [1, None]}, "n": 2}, (1, '{"a":[1,null]}', 2.0)),
        ({"v": True, "id": 1}, (1, "true", None)),
    ):
        rows = run(name, [make(PLAIN), make(row)])
        assert [each["odd"] for each in rows] == [None, None]
        assert tuple(rows[-1][column] for column in ("c0", "c1", "c2")) == values


@pytest.mark.parametrize("name", EACH)
def test_new_columns_are_set_aside_unless_null(name: str) -> None:
    make = EACH[name]
    if name == "canal-json":
        # its messages list their columns
        assert odd(name, make({**PLAIN, "z": None})) == "a message that is not a plain row event"
    else:
        assert "a new column z" in odd(name, make({**PLAIN, "z": 5}))
        assert run(name, [make({**PLAIN, "z": None})])[0]["k0"] == 1
    assert run(name, [make(PLAIN), make({"v": "y", "id": 2})])[1]["c2"] is None


ODD: dict[str, tuple[str, Any]] = {
    "flat: another op": ("debezium-flat-json", flat(PLAIN, __op="z")),
    "flat: truncate": ("debezium-flat-json", flat(PLAIN, __op="t")),
    "flat: with a schema that is not the table's": (
        "debezium-flat-json",
        {"schema": {"fields": []}, "payload": flat(PLAIN)},
    ),
    "maxwell: another type": ("maxwell-json", maxwell(PLAIN, "purge")),
    "maxwell: no row": ("maxwell-json", maxwell({}, "insert", data=None)),
    "canal: another type": ("canal-json", canal(PLAIN, "PURGE")),
    "canal: truncate": ("canal-json", canal(PLAIN, "TRUNCATE", isDdl=True, data=None, sql="truncate table t")),
    "canal: a truncate among other statements": ("canal-json", canal(PLAIN, "QUERY", data=None, sql=" Truncate t")),
    "canal: no rows": ("canal-json", canal(PLAIN, data=[])),
    "canal: not a list of rows": ("canal-json", canal(PLAIN, data=PLAIN)),
    "canal: a row that is null": ("canal-json", canal(PLAIN, data=[PLAIN, None])),
    "canal: a column without values": (
        "canal-json",
        canal(PLAIN, mysqlType={"id": "int", "v": "text", "n": "double", "z": "int"}),
    ),
    "canal: a column without its type": ("canal-json", canal(PLAIN, mysqlType={"id": "int", "v": "text"})),
    "ogg: another type": ("ogg-json", ogg(PLAIN, "X")),
    "ogg: truncate": ("ogg-json", ogg(PLAIN, "T")),
    "ogg: a delete without its row": ("ogg-json", ogg(PLAIN, "D", after=None)),
    "dms: another operation": ("dms-json", dms(PLAIN, "purge")),
    "dms: truncate": ("dms-json", dms({}, "truncate-table", **{"record-type": "control"})),
    "dms: a column called like an old one": ("dms-json", dms({**PLAIN, "BI_z": 2}, "insert")),
}


@pytest.mark.parametrize("case", ODD)
def test_odd_messages_are_set_aside(case: str) -> None:
    odd(*ODD[case])


MOVED: dict[str, tuple[str, Any]] = {
    "debezium": ("debezium-json", debezium(PLAIN, "u", before={"id": 2, "v": "y"})),
    "maxwell": ("maxwell-json", maxwell(PLAIN, "update", old={"id": 2})),
    "canal": ("canal-json", canal(PLAIN, "UPDATE", old=[{"id": "2"}])),
    "ogg": ("ogg-json", ogg(PLAIN, "U", before={**PLAIN, "id": 2})),
    "dms": ("dms-json", {**dms(PLAIN, "update"), "before-image": {"id": 2}}),
    "dms, beside the row": ("dms-json", dms({**PLAIN, "BI_id": 2}, "update")),
}


@pytest.mark.parametrize("case", MOVED)
def test_an_update_that_changes_the_key_deletes_the_row_under_the_old_one(case: str) -> None:
    deleted, row = run(MOVED[case][0], [MOVED[case][1]])
    assert (deleted["op"], deleted["k0"], deleted["c1"], deleted["moved"], deleted["n_d"], deleted["n_u"]) == (
        "d",
        2,
        None,
        False,
        1,
        0,
    )
    assert (row["op"], row["k0"], row["c1"], row["moved"], row["o0"], row["n_u"]) == ("u", 1, "x", True, 2, 1)
    assert [deleted[part] for part in ORDER_PARTS] == [row[part] for part in ORDER_PARTS]
    assert deleted["source_table"] == row["source_table"] == "d.t"


def test_an_equal_key_in_another_form_has_not_changed() -> None:
    (row,) = run("maxwell-json", [maxwell(PLAIN, "update", old={"id": "1", "v": "y"})])
    assert (row["k0"], row["moved"], row["o0"]) == (1, False, None)


@pytest.mark.parametrize("name", EACH)
def test_misfits_of_a_known_table_are_rejected(name: str) -> None:
    make = EACH[name]
    cases = {
        "values do not fit their columns: n (double)": {**PLAIN, "n": "x"},
        "values do not fit their columns: id (bigint), n (double)": {**PLAIN, "id": 1.5, "n": "x"},
        "no value for the key columns id": {**PLAIN, "id": None},
    }
    rows = run(name, [make(PLAIN), *map(make, cases.values())], rejects=True)
    assert [row["odd"] for row in rows] == [None] * 4 and rows[0]["rejected"] is None
    assert [row["rejected"]["reason"] for row in rows[1:]] == list(cases)
    assert [row["rejected"]["rule"] for row in rows[1:]] == ["type", "type", "no-key"]
    assert [json.loads(row["message"]["value"]) for row in rows[1:]] == [make(row) for row in cases.values()]
    assert [row["rejected"]["key"]["k0"] for row in rows[1:]] == [1, None, None]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("canal-json", lambda key: canal(PLAIN, pkNames=key)),
        ("maxwell-json", lambda key: maxwell(PLAIN, primary_key_columns=key)),
    ],
)
def test_the_key_in_messages_must_be_the_tables(name: str, message: Any) -> None:
    assert [row["odd"] for row in run(name, [message(["id"]), message([]), message(None)], target={"key": ()})] == [
        None
    ] * 3
    for key in (["v"], ["id", "v"]):
        assert odd(name, message(key), target={"key": ()}) == "another key"
        assert run(name, [message(key)])[0]["odd"] is None


def test_a_missing_key_is_reported_with_its_other_case() -> None:
    (row,) = run("json", [{"ID": 1, "v": "x"}], target={"exclude_columns": ("ID",)}, rejects=True)
    assert row["rejected"]["reason"] == "no value for the key columns id; it has ID, and names are case-sensitive"


NO_ROWS: dict[str, list[Any]] = {
    "maxwell-json": [{"type": "table-alter", "database": "d", "table": "t", "ts": 5}, {"type": "heartbeat"}],
    "canal-json": [canal(PLAIN, "ALTER", isDdl=True, data=None), canal(PLAIN, "QUERY", data=None)],
    "dms-json": [dms({}, "create-table", **{"record-type": "control"})],
}


@pytest.mark.parametrize("name", MAKE)
def test_other_tables_and_messages_without_rows_are_skipped(name: str) -> None:
    own, others = MAKE[name](PLAIN), MAKE[name]({"other": 1})
    others = json.loads(json.dumps(others).replace('"t"', '"o"').replace('"d.t"', '"d.o"'))
    rows = run(name, [own, others, *NO_ROWS.get(name, [])])
    assert [(row["k0"], row["source_table"].endswith("t")) for row in rows] == [(1, True)]


def test_several_rows_of_a_message_keep_their_order() -> None:
    message = canal(
        PLAIN, "UPDATE", data=[PLAIN, {**PLAIN, "id": 2}, {**PLAIN, "v": "z"}], old=[{"v": "a"}, {}, {"v": "x"}]
    )
    rows = run("canal-json", [message])
    assert [(row["k0"], row["c1"], row["ord"] % 8) for row in rows] == [(1, "x", 0), (2, "x", 1), (1, "z", 2)]


@pytest.mark.parametrize(
    "value", [5, "5", 0, 2**63 - 1, -1, "-5", -(2**63), "2024-01-02T03:04:05Z", "2024-01-02 03:04:05.123456"]
)
def test_a_member_gives_the_order(value: Any) -> None:
    fields = (Field("id", "bigint"), Field("at", "string"))
    rows = run("json", [{"id": 1, "at": value}], fields=fields, order_by="at")
    micros = {"2024-01-02T03:04:05Z": 1_704_164_645_000_000, "2024-01-02 03:04:05.123456": 1_704_164_645_123_456}
    assert rows[0]["pos"] == int(micros.get(value, value)) + 2**63


@pytest.mark.parametrize("value", [None, "x", True, 2**63, {"a": 1}])
def test_invalid_orders_are_odd(value: Any) -> None:
    fields = (Field("id", "bigint"),)
    odd("json", {"id": 1, "at": value}, fields=fields, target={"exclude_columns": ("at",)}, order_by="at")


@pytest.mark.parametrize("name", ["json", "debezium-json"])
def test_a_repeated_member_is_set_aside(name: str) -> None:
    row = json.dumps(EACH[name](PLAIN)).replace('"v": "x"', '"v": "x", "v": "b"')
    assert odd(name, row) == "text that is not JSON"


def test_shards_are_distinguished_by_their_tables() -> None:
    fields = (*FIELDS, Field("shard", "string"))
    messages = [{**maxwell({**PLAIN, "id": n}), "table": f"t_{n}"} for n in range(4)]
    target = {"source_table": None, "source_tables": ("d.t_1", "d.t_3"), "source_column": "shard"}
    rows = run("maxwell-json", messages, fields=fields, target=target)
    assert [(row["k0"], row["c3"]) for row in rows] == [(1, "d.t_1"), (3, "d.t_3")]


@pytest.mark.parametrize("name", EACH)
def test_a_new_table_gets_the_columns_of_messages(name: str) -> None:
    lines = [json.dumps(EACH[name](row)) for row in (PLAIN, {**PLAIN, "n": 2, "z": True, "empty": None})]
    batch = pa.record_batch({"value": lines, "arrival": [0, 1]})
    scan = Scan(None, lambda _: iter([batch]), 1, 1, keyed=False)  # type: ignore[arg-type]
    (of_table,) = message_facts(scan.first_values(10), EnvelopeReader(name, Reading(1), ()))
    columns = of_table.fields
    if name == "canal-json":
        # in the order of its types
        assert columns == (Field("id", "bigint"), Field("v", "string"), Field("n", "double"))
    else:
        assert columns == (Field("id", "bigint"), Field("n", "double"), Field("v", "string"), Field("z", "boolean"))


@pytest.mark.parametrize("op", ["c", "d"])
def test_a_missing_text_key_is_set_aside(op: str) -> None:
    fields = (Field("id", "string"), Field("v", "string"))
    image = {"id": None, "v": "x"}
    event = debezium({"id": "a", "v": "x"})
    other = {**debezium(image, op), "before": image if op == "d" else None, "after": None if op == "d" else image}
    first, second = run("debezium-json", [event, other], fields=fields)
    assert (first["k0"], first["odd"]) == ("a", None)
    assert (second["k0"], second["odd"]) == (None, "the key column id")


@pytest.mark.parametrize("name", EACH)
@pytest.mark.parametrize("depth", [150, 900, 1001, 5000])
def test_a_deeply_nested_value_does_not_fail_a_task(name: str, depth: int) -> None:
    nested = f"{'[' * depth}{']' * depth}"
    message = json.dumps(EACH[name](PLAIN)).replace('"v": "x"', f'"v": {nested}')
    (row,) = run(name, [message])
    expected = (nested, None) if depth < 1000 else (None, "text that is not JSON")
    assert (row["c1"], row["odd"]) == expected


def test_a_key_that_was_an_object_before_is_set_aside() -> None:
    assert odd("debezium-json", debezium(PLAIN, "u", before={"id": [1]})) == "an old key"


@pytest.mark.parametrize("value", [1.7e12, "1700000000000", " 1700000000000 ", 1700000000000.0])
def test_log_positions_may_be_numbers_or_texts(value: Any) -> None:
    (row,) = run("canal-json", [canal(PLAIN, es=value)])
    assert (row["pos"], row["odd"]) == (1_700_000_000_000, None)


@pytest.mark.parametrize("moment", ["2024-01-02T03:04:05.123456 UTC", "2024-1-2 03:04:05", "yesterday"])
def test_invalid_order_times_are_set_aside(moment: str) -> None:
    assert odd("dms-json", dms(PLAIN, timestamp=moment)) == "a message that is not a plain row event"
    assert odd("ogg-json", ogg(PLAIN, op_ts=moment)) == "a message that is not a plain row event"
