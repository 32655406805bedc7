"""Events that no server of the tests writes: files beyond 4 GiB, a crashed server, unreadable events."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable
from typing import Any

import pytest

from lakecdc.ingest.sources.mysql.decoder import Decoder, LogError
from lakecdc.ingest.sources.mysql.reading import Limits, LogTable, Summary
from lakecdc.ingest.sources.mysql.server import Server
from lakecdc.ingest.sources.mysql.table_map import Named
from lakecdc.ingest.sources.mysql.types import MysqlType
from lakecdc.model.positions import Place
from tests.lakecdc.ingest.formats.fuzz import mutated
from tests.on_demand import on_demand

GTID, QUERY, ROTATE, XID, TABLE_MAP, WRITE, UPDATE = 162, 2, 4, 16, 19, 23, 24
NOW = (Named("id", MysqlType("int")), Named("v", MysqlType("int")))
SERVER = Server(mariadb=True, identity="mariadb:1:0", fold=False, checksum=False, charsets={})
TABLES = {0: LogTable("db", "t", 0, ("id",), frozenset(), NOW)}


class Log:
    """Writes events one after another."""

    def __init__(self, at: int = 4) -> None:
        self.at, self.events = at, list[bytes]()

    def add(self, kind: int, body: bytes, seconds: int = 7) -> Log:
        size = 19 + len(body)
        self.at += size
        self.events.append(struct.pack("<IBIIIH", seconds, kind, 1, size, self.at & 0xFFFFFFFF, 0) + body)
        return self

    def begin(self, number: int = 1) -> Log:
        return self.add(GTID, struct.pack("<QIB", number, 0, 0) + bytes(6))

    def rows(self, *ids: int, kind: int = WRITE, padding: int = 0) -> Log:
        columns = b"\x02\x03\x03" + b"\x00" + b"\x00"
        self.add(TABLE_MAP, bytes((9, 0, 0, 0, 0, 0)) + b"\0\0" + b"\x02db\0\x01t\0" + columns)
        images = b"".join(b"\0" + struct.pack("<ii", i, i) for i in ids)
        self.add(kind, bytes((9, 0, 0, 0, 0, 0)) + b"\0\0\x02" + b"\x03" * (kind - WRITE + 1) + images)
        self.at += padding
        return self

    def query(self, statement: bytes) -> Log:
        return self.add(QUERY, bytes(8) + b"\x02" + bytes(4) + b"db\0" + statement)

    def commit(self) -> Log:
        return self.add(XID, bytes(8))


def decode(log: Iterable[bytes], begin: int = 4, **limits: Any) -> tuple[list[dict[str, Any]], Summary]:
    bounds = Limits(limits.get("stop", 1 << 62), limits.get("events", 1 << 62), seconds=limits.get("seconds", 0))
    decoder = Decoder(TABLES, SERVER, Place("binlog.000001", begin), bounds)
    rows = [row for batch in decoder.batches(log) for row in batch.to_pylist()]
    return rows, Summary.from_json(decoder.summary.to_json())


def test_a_batch_ends_between_two_transactions() -> None:
    log = Log().begin(1).rows(1, 2).rows(3).commit()
    first = log.at
    log.begin(2).rows(4).commit()
    rows, summary = decode(log.events, events=1)
    assert [(r["kind"], r["new"]) for r in rows] == [("c", ["1", "1"]), ("c", ["2", "2"]), ("c", ["3", "3"])]
    assert [r["ordinal"] for r in rows] == [1, 2, 3] and rows[0]["commit_lsn"] == rows[1]["commit_lsn"]
    assert (summary.pos, summary.gtid, summary.seconds) == (first, "0-1-1", 7)
    _rows, summary = decode(log.events, stop=Place("binlog.000001", first + 1).number)
    assert (summary.pos, summary.gtid) == (log.at, "0-1-2")


def test_a_batch_ends_at_its_time_limit_once_it_has_rows() -> None:
    log = Log().query(b"CREATE TABLE other (id int)").begin(1).rows(1, 2).rows(3).commit()
    first = log.at
    log.begin(2).rows(4).commit()
    rows, summary = decode(log.events, seconds=1e-9)
    assert (len(rows), summary.pos) == (3, first)
    rows, summary = decode(log.events, seconds=3600)
    assert (len(rows), summary.pos) == (4, log.at)


def test_an_end_inside_a_transaction_is_not_a_boundary() -> None:
    log = Log().begin(1).rows(1).commit()
    first = log.at
    rows, summary = decode(log.begin(2).rows(2).events)
    assert (summary.pos, summary.gtid) == (first, "0-1-1")


def test_a_transaction_beyond_4_gib_stays_in_order() -> None:
    log = Log(2**32 - 500).begin().rows(1, padding=2**31).rows(2, padding=2**31).rows(3, 4).commit()
    after = Log().begin(2).rows(5).commit()
    rotate = Log(log.at).add(ROTATE, struct.pack("<Q", 4) + b"binlog.000002")
    rows, summary = decode([*log.events, *rotate.events, *after.events], begin=2**32 - 500)
    order = [(r["commit_lsn"], r["ordinal"]) for r in rows]
    assert [r["new"][0] for r in rows] == ["1", "2", "3", "4", "5"]
    assert order == sorted(order) and len({*order}) == 5
    assert summary.place == Place("binlog.000002", after.at)


@pytest.mark.parametrize(
    ("ending", "why"),
    [
        (lambda log: log.add(ROTATE, struct.pack("<Q", 4) + b"binlog.000002"), "without an end"),
        (lambda log: log.query(b"ROLLBACK"), "ends with ROLLBACK"),
        (lambda log: log.add(38, b"\0" + bytes(12)), "XA transaction"),
    ],
)
def test_rows_of_an_uncertain_transaction_stop_their_table(ending: Any, why: str) -> None:
    _rows, summary = decode(ending(Log().begin().rows(1)).events)
    assert why in summary.lost[0]


def test_a_rolled_back_savepoint_stops_its_tables() -> None:
    log = Log().begin().rows(1).query(b"ROLLBACK TO `s`").rows(2).add(38, b"\x01" + bytes(12))
    _rows, summary = decode(log.events)
    assert "ends with ROLLBACK" in summary.lost[0] and summary.pos == log.at


def test_a_one_phase_xa_transaction_counts() -> None:
    log = Log().begin().rows(1).rows(2).add(38, b"\x01" + bytes(12))
    rows, summary = decode(log.events)
    assert len(rows) == 2 and not summary.lost and summary.pos == log.at


@pytest.mark.parametrize(
    "log",
    [
        Log().query(b"SELECT `db`.`f`(1)"),
        Log().begin().query(b"INSERT INTO other VALUES (1)").commit(),
        # LOAD DATA, with thirteen more bytes before its statement
        Log().begin().add(17, bytes(20)).add(18, bytes(8) + b"\x02" + bytes(17) + b"db\0LOAD DATA INFILE 'x'").commit(),
    ],
)
def test_logged_statements_stop_every_table_they_may_have_changed(log: Log) -> None:
    _rows, summary = decode(log.events)
    assert "may have been changed by a logged" in summary.lost[0]


@pytest.mark.parametrize("kind", [20, 26, 39, 40, 165, 166, 171, 172, 99])
def test_events_that_may_have_rows_are_never_skipped(kind: int) -> None:
    with pytest.raises(LogError, match="which lakecdc cannot read"):
        decode(Log().begin().add(kind, bytes(20)).events)


def test_unknown_events_without_rows_are_skipped() -> None:
    _rows, summary = decode(Log().add(160, b"UPDATE t SET").add(161, bytes(8)).add(27, b"binlog.000001").events)
    assert not summary.lost and summary.total == 0


def test_a_key_change_is_a_delete_and_an_update_with_the_old_key() -> None:
    rows, summary = decode(Log().begin().rows(1, 2, 5, 5, kind=UPDATE).commit().events)
    changes = [(r["kind"], r["old"], r["new"], r["moved"]) for r in rows]
    assert changes == [("d", ["1"], None, False), ("u", ["1"], ["2", "2"], True), ("u", None, ["5", "5"], False)]
    assert summary.events == {0: {"d": 1, "u": 2}} and summary.total == 2


def test_rows_before_and_after_a_statement_have_different_columns() -> None:
    log = Log().begin(1).rows(1).commit().query(b"ALTER TABLE t DROP v, ADD w int").begin(2).rows(2).commit()
    now = (Named("id", MysqlType("int")), Named("w", MysqlType("int")))
    tables = {0: LogTable("db", "t", 0, ("id",), frozenset(), now, (("id", 1), ("v", 2)))}
    decoder = Decoder(tables, SERVER, Place("binlog.000001", 4), Limits(1 << 62, 1 << 62))
    rows = [row for batch in decoder.batches(log.events) for row in batch.to_pylist()]
    summary = Summary.from_json(decoder.summary.to_json())
    assert [(r.numbers, r.columns[1][0]) for r in summary.relations] == [((1, 2), "v"), ((1, 3), "w")]
    assert [row["version"] for row in rows] == [0, 1]
    assert (summary.columns, summary.added, summary.lost) == ({0: {"id": 1, "w": 3}}, {0: [3]}, {})


def test_events_before_a_tables_position_are_skipped() -> None:
    log = Log().begin(1).rows(1).commit()
    start = Place("binlog.000001", log.at).number
    log.query(b"TRUNCATE t").begin(2).rows(2).commit()
    tables = {0: LogTable("db", "t", start + 1, ("id",), frozenset(), NOW)}
    decoder = Decoder(tables, SERVER, Place("binlog.000001", 4), Limits(1 << 62, 1 << 62))
    rows = [row["new"] for batch in decoder.batches(log.events) for row in batch.to_pylist()]
    assert rows == [["2", "2"]] and not decoder.summary.truncates


@pytest.mark.parametrize("seed", on_demand(range(20), in_ci=[0]))
def test_mutated_events_raise_an_error_with_its_place(seed: int) -> None:
    rng, failed = random.Random(seed), 0
    log = Log().begin(1).rows(1, 2).rows(3).query(b"ALTER TABLE t ADD COLUMN x int").commit().begin(2).rows(4).commit()
    for _ in range(1000):
        events, place = [*log.events], rng.randrange(len(log.events))
        events[place] = mutated(rng, events[place])
        try:
            decode(events)
        except LogError as error:
            failed += 1
            assert "binlog" in str(error)
    assert failed > 50
