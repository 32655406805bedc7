"""Messages of pgoutput, built by hand from the protocol's description."""

from __future__ import annotations

import json
import random
import struct
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakecdc.ingest.sources.postgres import pgoutput
from lakecdc.ingest.sources.postgres.pgoutput import EPOCH_MICROS, Decoder, read_relation
from lakecdc.ingest.sources.postgres.pgoutput_tuples import UNCHANGED, ProtocolError, Tuples, read_tuple, write_tuple
from lakecdc.ingest.sources.postgres.reading import Bounds, LogTable, RelationColumn, Summary
from tests.lakecdc.ingest.formats.fuzz import mutated
from tests.on_demand import on_demand

OID = 16390
UNTOUCHED = object()


def begin(commit_lsn: int, micros: int = 5) -> bytes:
    return b"B" + struct.pack(">qqi", commit_lsn, micros, 700)


def commit(commit_lsn: int, micros: int = 5) -> bytes:
    return b"C\0" + struct.pack(">qqq", commit_lsn, commit_lsn + 48, micros)


def relation(*columns: tuple[str, bool], oid: int = OID, identity: str = "d") -> bytes:
    head = b"R" + struct.pack(">I", oid) + b"shop\0orders\0" + identity.encode() + struct.pack(">h", len(columns))
    return head + b"".join(bytes([key]) + name.encode() + b"\0" + struct.pack(">Ii", 23, -1) for name, key in columns)


def row(*values: Any) -> bytes:
    parts = [struct.pack(">h", len(values))]
    for value in values:
        if value is None or value is UNTOUCHED:
            parts.append(b"n" if value is None else b"u")
        else:
            parts.append(b"t" + struct.pack(">i", len(value.encode())) + value.encode())
    return b"".join(parts)


def insert(*values: Any, oid: int = OID) -> bytes:
    return b"I" + struct.pack(">I", oid) + b"N" + row(*values)


def update(new: Sequence[Any], old: Sequence[Any] | None = None, kind: str = "K") -> bytes:
    before = kind.encode() + row(*old) if old else b""
    return b"U" + struct.pack(">I", OID) + before + b"N" + row(*new)


def delete(*values: Any) -> bytes:
    return b"D" + struct.pack(">I", OID) + b"K" + row(*values)


def truncate(*oids: int) -> bytes:
    return b"T" + struct.pack(f">IB{len(oids)}I", len(oids), 0, *oids)


ORDERS = relation(("id", True), ("note", False), ("secret", False))
TABLES = {OID: LogTable(0, ("id",), frozenset({"secret"}))}


def decode(*messages: bytes, tables: dict[int, LogTable] | None = None) -> tuple[list[dict[str, Any]], Summary]:
    decoder = Decoder(tables or TABLES)
    rows = [row for batch in decoder.batches(messages) for row in batch.to_pylist()]
    return rows, decoder.summary


def test_an_insert_has_its_place() -> None:
    rows, summary = decode(begin(100, 7), ORDERS, insert("1", None, "x"), insert("2", "", "y"), commit(100, 7))
    assert rows[0] == {
        "relation": OID, "version": 0, "kind": "c", "commit_lsn": 100, "ordinal": 1, "commit_micros": EPOCH_MICROS + 7,
        "new": ["1", None, "x"], "open": None, "old": None, "moved": False, "summary": None,
    }  # fmt: skip
    assert (rows[1]["ordinal"], rows[1]["new"]) == (2, ["2", "", "y"])
    assert (summary.messages, summary.end_lsn, summary.commit_micros) == (5, 148, EPOCH_MICROS + 7)
    assert summary.events == {OID: {"c": 2}}


def test_unchanged_values_are_open_unless_excluded() -> None:
    rows, _ = decode(begin(1), ORDERS, update(["1", UNTOUCHED, UNTOUCHED]), commit(1))
    assert (rows[0]["kind"], rows[0]["open"], rows[0]["new"]) == ("u", ["note"], ["1", None, None])
    rows, _ = decode(begin(1), ORDERS, update(["1", "a", UNTOUCHED]), commit(1))
    assert rows[0]["open"] is None


def test_a_key_change_is_a_delete_and_an_update() -> None:
    rows, summary = decode(begin(1), ORDERS, update(["2", UNTOUCHED, "x"], ["1", None, None]), commit(1))
    assert [(r["kind"], r["old"], r["new"], r["moved"], r["ordinal"]) for r in rows] == [
        ("d", ["1", None, None], None, False, 1),
        ("u", ["1", None, None], ["2", None, "x"], True, 1),
    ]
    assert rows[1]["open"] == ["note"]
    assert summary.events == {OID: {"d": 1, "u": 1}}


def test_the_old_key_fills_only_an_unchanged_key() -> None:
    rows, _ = decode(begin(1), ORDERS, update([UNTOUCHED, UNTOUCHED, "x"], ["1", None, None]), commit(1))
    assert [(r["kind"], r["new"], r["open"], r["moved"]) for r in rows] == [("u", ["1", None, "x"], ["note"], False)]


def test_a_full_old_row_fills_everything() -> None:
    full = relation(("id", True), ("note", True), ("secret", True), identity="f")
    changed = update(["1", UNTOUCHED, "x"], ["1", "kept", "y"], "O")
    rows, _ = decode(begin(1), full, changed, commit(1))
    assert [(r["kind"], r["new"], r["open"], r["old"]) for r in rows] == [("u", ["1", "kept", "x"], None, None)]


def test_deletes_and_truncates_are_decoded() -> None:
    rows, summary = decode(
        begin(9), ORDERS, delete("1", None, None), truncate(4, OID), insert("1", "a", "b"), commit(9)
    )
    assert [(r["kind"], r["old"], r["ordinal"]) for r in rows] == [("d", ["1", None, None], 1), ("c", None, 3)]
    assert summary.truncates == {OID: (9, 2, EPOCH_MICROS + 5, 700)}


def test_applied_events_are_skipped_but_counted_in_the_order() -> None:
    tables = {OID: LogTable(100, ("id",))}
    stretch = [begin(99), ORDERS, insert("1", "", ""), truncate(OID), commit(99)]
    stretch += [begin(100), insert("7", "", "", oid=5), insert("2", "", ""), commit(100)]
    rows, summary = decode(*stretch, tables=tables)
    assert [(r["commit_lsn"], r["ordinal"], r["new"][0]) for r in rows] == [(100, 2, "2")]
    assert summary.truncates == {} and summary.messages == 9 and summary.end_lsn == 148


def test_a_key_is_recognized_by_its_number_under_every_name() -> None:
    def full(*names: str) -> bytes:
        return relation(*[(name, True) for name in names], identity="f")

    # the catalog has the newest names; log and table are behind
    tables = {OID: LogTable(0, ("nr",), numbers=({"note": 1, "id": 2}, {"note": 1, "nr": 2, "id": 3}))}
    moves = [update(["n", "2", "x"][:size], ["n", "1", "x"][:size], "O") for size in (2, 2, 3)]
    names = (("note", "id"), ("note", "between"), ("note", "nr", "id"))
    messages = [m for there, move in zip(names, moves, strict=True) for m in (full(*there), move)]
    rows, summary = decode(begin(1), *messages, commit(1), tables=tables)
    assert [row["moved"] for row in rows] == [False, True] * 3
    assert [r.key for r in summary.relations] == [(1,)] * 3
    # either column could be it
    _, summary = decode(begin(1), full("x", "y", "z"), insert("1", "2", "3"), commit(1), tables=tables)
    assert [r.key for r in summary.relations] == [()]
    assert Summary.from_json(json.loads(json.dumps(summary.to_json()))) == summary


def test_versions_count_descriptions_that_differ() -> None:
    wider = relation(("id", True), ("note", False), ("secret", False), ("more", False))
    rows, summary = decode(
        begin(1), ORDERS, insert("1", "", ""), ORDERS, insert("2", "", ""), wider, insert("3", "", "", "m"), commit(1)
    )
    assert [(r["version"], len(r["new"])) for r in rows] == [(0, 3), (0, 3), (1, 4)]
    assert [r.version for r in summary.relations] == [0, 1]


def test_batches_are_bounded() -> None:
    large = "x" * 1_000_000
    messages = [begin(1), ORDERS, *[insert(str(i), large, None) for i in range(40)], commit(1)]
    sizes = [batch.num_rows for batch in Decoder(TABLES).batches(messages)]
    assert sizes == [17, 17, 6]
    messages = [begin(1), ORDERS, *[insert(str(i), None, None) for i in range(45_000)], commit(1)]
    assert [batch.num_rows for batch in Decoder(TABLES).batches(messages)] == [20_000, 20_000, 5_000]


def stretch(transactions: int, size: int) -> list[bytes]:
    """Return transactions of two rows of this many bytes each."""
    messages = [ORDERS]
    for number in range(1, 1 + transactions):
        messages += [begin(number), *[insert(f"{number}{i}", "x" * size, None) for i in range(2)], commit(number)]
    return messages


def test_a_read_ends_with_the_transaction_that_reaches_its_bytes() -> None:
    for most, transactions in ((1, 1), (2000, 1), (3000, 2), (1_000_000, 5), (0, 5)):
        decoder = Decoder(TABLES, Bounds(bytes=most))
        rows = sum(batch.num_rows for batch in decoder.batches(stretch(5, 1000)))
        assert (rows, decoder.summary.cut) == (2 * transactions, transactions < 5)
        assert decoder.summary.end_lsn == transactions + 48
    assert 1000 <= decoder.summary.event_bytes < 1100
    assert Decoder(TABLES).summary.event_bytes == 0


def test_a_large_transaction_of_several_batches_is_not_cut() -> None:
    decoder = Decoder(TABLES, Bounds(bytes=500_000))
    messages = [begin(1), ORDERS, *[insert(str(i), None, None) for i in range(45_000)], commit(1), *stretch(3, 10)]
    assert sum(batch.num_rows for batch in decoder.batches(messages)) == 45_000
    assert decoder.summary.cut and decoder.summary.messages == 45_003


def test_a_read_ends_at_its_time_limit_once_it_has_rows() -> None:
    tables = {OID: LogTable(3, ("id",))}
    decoder = Decoder(tables, Bounds(seconds=1e-9))
    rows = [row["commit_lsn"] for batch in decoder.batches(stretch(5, 10)) for row in batch.to_pylist()]
    assert rows == [3, 3] and decoder.summary.cut and decoder.summary.end_lsn == 51


def test_the_time_limit_starts_with_the_first_message() -> None:
    decoder = Decoder(TABLES, Bounds(seconds=0.2))

    def late() -> Iterator[bytes]:
        time.sleep(0.3)
        yield from stretch(2, 10)
        time.sleep(0.3)
        yield from stretch(2, 10)

    assert sum(batch.num_rows for batch in decoder.batches(late())) == 6


def test_the_summary_equals_itself_after_serialization() -> None:
    _, summary = decode(begin(9), ORDERS, insert("1", "a", "b"), truncate(OID), commit(9))
    assert Summary.from_json(json.loads(json.dumps(summary.to_json()))) == summary


def test_a_relation_is_read_in_full() -> None:
    decoded = read_relation(relation(("Größe", True), ("b", False), identity="i"), 3)
    assert (decoded.table, decoded.schema, decoded.name, decoded.identity, decoded.version) == (
        OID,
        "shop",
        "orders",
        "i",
        3,
    )
    assert decoded.columns == (RelationColumn("Größe", 23, -1, True), RelationColumn("b", 23, -1, False))


VALUES = st.lists(st.one_of(st.none(), st.just(UNCHANGED), st.text(max_size=5).map(str.encode)), max_size=6)


@given(st.lists(st.one_of(st.none(), VALUES), max_size=8))
def test_splitting_many_tuples_at_once_equals_reading_each(rows: list[list[Any] | None]) -> None:
    tuples = Tuples()
    for number, values in enumerate(rows):
        if values is not None:
            message = b"x" * number + write_tuple(values) + b"rest"
            assert read_tuple(message, number) == (values, len(message) - 4)
            tuples.add(number, [message], number)
    texts, unchanged = tuples.split(len(rows))
    plain = [v and [None if x is None or x is UNCHANGED else x.decode() for x in v] for v in rows]
    assert texts.to_pylist() == plain
    assert sorted(unchanged) == [(i, j) for i, v in enumerate(rows) for j, x in enumerate(v or ()) if x is UNCHANGED]


def test_messages_of_one_kind_are_decoded_together_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pgoutput, "_BATCH_ROWS", 3)
    log = [begin(1), ORDERS, *(insert(str(i), "a", "b") for i in range(5)), delete("0", None, None), commit(1)]
    log += [begin(2), *(delete(str(i), None, None) for i in (1, 2)), insert("1", "c", "d"), commit(2)]
    decoder = Decoder({OID: LogTable(0, ("id",))})
    batches = list(decoder.batches(log))
    assert [batch.num_rows for batch in batches] == [3, 3, 3]
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [(r["kind"], (r["new"] or r["old"])[0], r["ordinal"]) for r in rows] == [
        *(("c", str(i), i + 1) for i in range(5)), ("d", "0", 6), ("d", "1", 1), ("d", "2", 2), ("c", "1", 3)
    ]  # fmt: skip
    assert len({r["commit_lsn"] for r in rows[:6]}) == len({r["commit_lsn"] for r in rows[6:]}) == 1
    assert decoder.summary.messages == len(log) and decoder.summary.events == {OID: {"c": 6, "d": 3}}


def test_other_messages_are_skipped_or_refused() -> None:
    rows, _ = decode(b"Y\0\0\0\1public\0mood\0", b"O\0\0\0\0\0\0\0\1there\0", begin(1), commit(1))
    assert rows == []
    with pytest.raises(ProtocolError, match="'S' is not part"):
        decode(b"S\0\0\0\1\1")
    with pytest.raises(ProtocolError, match="'b' is not part"):
        decode(begin(1), ORDERS, b"I" + struct.pack(">I", OID) + b"N" + struct.pack(">h", 1) + b"b\0\0\0\1x")


@pytest.mark.parametrize("seed", on_demand(range(20), in_ci=[0]))
def test_mutated_messages_raise_an_error_with_its_place(seed: int) -> None:
    rng, failed = random.Random(seed), 0
    good = [begin(100, 7), ORDERS, insert("1", None, "x"), update(["2", UNTOUCHED, "x"], ["1", None, None])]
    good += [update(["2", "ü", "x"]), delete("1", None, None), truncate(OID), commit(100, 7)]
    for _ in range(1000):
        messages, place = [*good], rng.randrange(len(good))
        messages[place] = mutated(rng, good[place]) or b"?"
        try:
            decode(*messages)
        except ProtocolError as error:
            failed += 1
            assert "cannot be read" in str(error) or "is not part of protocol" in str(error)
    assert failed > 300
