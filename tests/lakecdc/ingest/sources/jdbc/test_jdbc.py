"""Intervals of a cursor are read once, again, late, in parallel, and after a kill."""

from __future__ import annotations

import sqlite3
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pytest

from lakecdc.contract.errors import SpecError
from lakecdc.contract.runtime import packages, source_packages
from lakecdc.contract.sources.jdbc import JdbcSource
from lakecdc.contract.spec import parse_spec
from lakecdc.erase.job import erase_rows
from lakecdc.ingest.job import ingest
from lakecdc.metadata.names import ERASED_SUFFIX, IDLE_POSITION
from lakecdc.runtime.run import run
from tests.conftest import Lake
from tests.lakecdc.ingest.killing import Run
from tests.lakecdc.ingest.sources.jdbc.conftest import Fed, Shop
from tests.lakecdc.maintain.support import run as erase

DAYS = [f"2026-01-0{day}T00:00:00+00:00" for day in range(1, 8)]
AT = '"changed ""at"""'


def order(shop: Shop, number: int, state: str, moment: str) -> None:
    shop.sql(
        f"INSERT INTO \"Or ders\" VALUES (1, {number}, '{state}', 1.5, '{moment}') ON CONFLICT (\"Id\", part) "
        f"DO UPDATE SET state = excluded.state, {AT} = excluded.{AT}"
    )


def test_an_unknown_database_is_bad_input_unlike_an_unreachable_server(orders: Shop) -> None:
    for url, kind in ((f"{orders.source['url']}_gone", "bad input"), ("jdbc:postgresql://127.0.0.1:1/s", "cluster")):
        report = run(parse_spec(orders.spec(url=url)), ingest)
        assert (report.failure_class, report.tables) == (kind, ()), report
    assert "Check url" in (report.error or "")


def test_intervals_may_come_in_order_again_and_late(orders: Shop) -> None:
    order(orders, 1, "old", "2026-01-02T00:00:00Z")
    order(orders, 2, "next", "2026-01-03T00:00:00Z")
    order(orders, 3, "older", "2026-01-01T12:00:00Z")
    first = orders.run(DAYS[1], DAYS[2])
    assert first.metrics["first_run_reads"].startswith('only rows whose changed "at" is between 2026-01-02T00:00')
    assert orders.rows('"Id", part, state, price') == [(1, 1, "old", pytest.approx(1.5))]
    assert first.metrics["read_through"] == "2026-01-03T00:00:00.000000+00:00"
    # an interval beyond a gap does not advance the high-water mark; filling the gap does
    order(orders, 1, "new", "2026-01-05T23:59:59.999999Z")
    assert orders.run(DAYS[4], DAYS[5]).metrics["read_through"][:10] == "2026-01-03"
    # the newer state was already read; an older interval must not restore the old one
    orders.sql(f"UPDATE \"Or ders\" SET state = 'restored', {AT} = '2026-01-01T01:00:00Z' WHERE \"Id\" = 1")
    report = orders.run(DAYS[0], DAYS[1])
    assert report.metrics["older_dropped"] == 1
    assert orders.rows('"Id", state') == [(1, "new"), (3, "older")]
    assert orders.run(DAYS[2], DAYS[4]).metrics["read_through"][:10] == "2026-01-06"
    before = orders.rows('"Id", state, _lakecdc_order')
    orders.run(DAYS[2], DAYS[4])
    assert orders.rows('"Id", state, _lakecdc_order') == before
    assert [row[:2] for row in before] == [(1, "new"), (2, "next"), (3, "older")]


@pytest.mark.soak
def test_a_shuffled_backfill_ends_like_an_ordered_one(lake: Lake, orders: Shop) -> None:
    shuffled = Shop(lake, orders.server, "Or ders", cursor_column='changed "at"')
    for number in range(1, 5):
        order(orders, number, "first", f"2026-01-0{number}T10:00:00Z")

    def backfill(shop: Shop, *days: int) -> str:
        return [shop.run(DAYS[day], DAYS[day + 1], outcome="done") for day in days][-1].metrics["read_through"][:10]

    assert backfill(orders, 0, 1, 2, 3) == backfill(shuffled, 2, 0, 3, 1) == "2026-01-05"
    # a row changes before the days are read again, in another order
    order(orders, 1, "moved", "2026-01-04T11:00:00Z")
    assert backfill(orders, 3) == backfill(shuffled, 3) == "2026-01-05"
    assert orders.rows('"Id", state, _lakecdc_order') == shuffled.rows('"Id", state, _lakecdc_order')
    assert orders.rows('"Id", state')[0] == (1, "moved")


def test_a_quiet_interval_is_recorded_without_a_snapshot(orders: Shop) -> None:
    order(orders, 1, "a", "2026-01-01T05:00:00Z")
    orders.run(DAYS[0], DAYS[1])
    report = orders.run(DAYS[1], DAYS[2], outcome="nothing")
    assert report.snapshot_before == report.snapshot_after
    assert report.metrics["read_through"][:10] == "2026-01-03"


@pytest.mark.parametrize(
    ("interval", "message"),
    [
        ({"start": DAYS[0], "end": DAYS[0]}, "empty.*CronDataIntervalTimetable"),
        ({"start": DAYS[1], "end": DAYS[0]}, "empty"),
        ({"start": "None", "end": "None"}, "not an ISO-8601 time.*CronDataIntervalTimetable"),
        ({"start": "", "end": ""}, "empty"),
    ],
)
def test_an_empty_interval_is_refused_with_the_remedy(orders: Shop, interval: dict[str, str], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parse_spec({**orders.spec(), "source": {**orders.source, "interval": interval}})


def test_unreadable_sources_are_refused_with_the_remedy(orders: Shop) -> None:
    assert "CronDataIntervalTimetable" in (orders.run(outcome="failed").reason or "")
    reason = orders.run(DAYS[0], DAYS[1], outcome="failed", cursor_column="changed").reason or ""
    assert "no column 'changed'" in reason and "part, Id, state" in reason
    assert "full_load" in (orders.run(outcome="failed", cursor_column="Id").reason or "")


@pytest.mark.soak
def test_missing_tables_and_cursors_are_refused_with_the_remedy(orders: Shop) -> None:
    assert "of type string" in (orders.run(DAYS[0], DAYS[1], outcome="failed", cursor_column="state").reason or "")
    integer = orders.run(DAYS[0], DAYS[1], outcome="failed", cursor_column="Id").reason or ""
    assert "Set the interval to null" in integer
    orders.target["source_table"] = "public.nowhere"
    assert "source_table" in (orders.run(DAYS[0], DAYS[1], outcome="failed").reason or "")


def test_a_table_fed_by_another_cursor_is_refused(orders: Shop) -> None:
    order(orders, 1, "a", "2026-01-01T05:00:00Z")
    orders.run(DAYS[0], DAYS[1])
    assert "cannot be compared" in (orders.run(outcome="failed", cursor_column="Id", full_load=True).reason or "")
    orders.sql(f'ALTER TABLE "Or ders" ALTER {AT} TYPE bigint USING 1')
    assert "is now of type bigint" in (orders.run(outcome="failed").reason or "")


def test_a_parallel_full_load_is_followed_by_a_lagging_interval(orders: Shop) -> None:
    orders.sql(
        f'INSERT INTO "Or ders" (part, "Id", {AT}) '
        "SELECT 1, n, '2026-01-01T00:00:00Z'::timestamptz + n * interval '1h' FROM generate_series(1, 30) n "
        "UNION ALL SELECT 1, 99, NULL"
    )
    # visible only after the next interval has begun, with an earlier time
    report = orders.run(DAYS[1], DAYS[2], full_load=True, partitions=3)
    assert report.metrics["first_run_reads"].startswith('all rows whose changed "at" is before 2026-01-03T00:00')
    assert report.metrics["rows_written"] == 31
    order(orders, 50, "late", "2026-01-02T23:00:00Z")
    order(orders, 51, "in time", "2026-01-03T01:00:00Z")
    orders.run(DAYS[2], DAYS[3], full_load=True, lag_seconds=3600, partitions=3)
    assert orders.rows('count(*), count(DISTINCT "Id")') == [(33, 33)]
    assert (50, "late") in orders.rows('"Id", state')


def test_cursors_may_be_dates_and_times_without_a_zone(lake: Lake, server: object, orders: Shop) -> None:
    orders.sql("DROP TABLE IF EXISTS days")
    orders.sql("CREATE TABLE days (id int PRIMARY KEY, day date, local timestamp)")
    orders.sql("INSERT INTO days VALUES (1, '2026-01-01', '2026-01-01 23:30'), (2, '2026-01-02', '2026-01-02 00:30')")
    orders.target["source_table"] = "days"
    orders.run(DAYS[0], DAYS[1], cursor_column="day")
    assert orders.rows("id") == [(1,)]
    half = orders.run(DAYS[1], "2026-01-02T06:00:00Z", cursor_column="day", outcome="failed")
    assert "midnight" in (half.reason or "")
    other = Shop(lake, orders.server, "days", cursor_column="local", cursor_zone="Europe/Berlin")
    # midnight in UTC is one o'clock in Berlin
    other.run(DAYS[0], DAYS[1])
    assert other.rows("id, CAST(_lakecdc_source_time AS VARCHAR)") == [
        (1, "2026-01-01 22:30:00+00"),
        (2, "2026-01-01 23:30:00+00"),
    ]


@pytest.mark.soak
def test_a_repeated_hour_is_read_completely(lake: Lake, orders: Shop) -> None:
    orders.sql("DROP TABLE IF EXISTS days")
    orders.sql("CREATE TABLE days (id int PRIMARY KEY, day date, local timestamp)")
    orders.sql("INSERT INTO days VALUES (1, '2026-01-01', '2026-01-01 23:30'), (2, '2026-01-02', '2026-01-02 00:30')")
    other = Shop(lake, orders.server, "days", cursor_column="local", cursor_zone="Europe/Berlin")
    other.run(DAYS[0], DAYS[1])
    # the clock is set back at 01:00 UTC, so 02:20 occurs twice
    orders.sql("INSERT INTO days VALUES (3, NULL, '2026-10-25 02:10')")
    other.run("2026-10-24T23:30:00Z", "2026-10-25T00:30:00Z")
    orders.sql("INSERT INTO days VALUES (4, NULL, '2026-10-25 02:20'), (5, NULL, '2026-10-25 02:40')")
    other.run("2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z")
    assert [row[0] for row in other.rows("id")] == [1, 2, 3, 4, 5]


def test_times_in_sqlite_are_text(books: tuple[Fed, sqlite3.Connection]) -> None:
    fed, shop = books
    shop.execute("CREATE TABLE events (id INTEGER PRIMARY KEY, changed TIMESTAMP)")
    moments = ["2026-01-01 00:00:00.000", "2026-01-01 23:59:59.999", "2026-01-02 00:00:00.000"]
    shop.executemany("INSERT INTO events VALUES (?, ?)", enumerate(moments))
    fed.target["source_table"] = "events"
    fed.run(DAYS[0], DAYS[1], cursor_column="changed", partitions=2)
    assert fed.rows("id, changed") == [(0, datetime(2026, 1, 1)), (1, datetime(2026, 1, 1, 23, 59, 59, 999_000))]


@pytest.mark.soak
def test_only_the_table_with_unreadable_metadata_fails(books: tuple[Fed, sqlite3.Connection]) -> None:
    fed, shop = books
    names = [fed.name, fed.lake.new_name("broken")]
    shop.execute("CREATE TABLE pens AS SELECT * FROM books")
    targets = [{"table": n, "source_table": t, "key": ["id"]} for n, t in zip(names, ("books", "pens"), strict=True)]
    spec = parse_spec(fed.lake.spec("ingest", source={**fed.source, "full_load": True}, target=targets))
    for version, expected in enumerate((["done", "done"], ["done", "failed"])):
        for table in ("books", "pens"):
            shop.execute(f"INSERT INTO {table} VALUES ({version}, 't', {version})")
        restore = fed.lake.break_metadata(names[1]) if version else None
        reports = run(spec, ingest).tables
        assert [r.outcome for r in reports] == expected, reports
    assert restore is not None and "Cannot load the table" in str(reports[1].reason)
    restore()
    assert [r.outcome for r in run(spec, ingest).tables] == ["nothing", "done"]
    assert [sorted(fed.lake.duckdb_rows(name, "id")) for name in names] == [[(0,), (1,)]] * 2


def test_an_integer_cursor_continues_from_the_highest_value(books: tuple[Fed, sqlite3.Connection]) -> None:
    fed, shop = books
    shop.executemany("INSERT INTO books VALUES (?, ?, ?)", [(n, f"t{n}", n * 5 - 12) for n in range(1, 6)])
    first = fed.run(full_load=True, partitions=4).metrics
    assert (first["position"]["through"], first["events"]) == (13, 5)
    assert fed.run(outcome="nothing").metrics["position"]["last"] == [13, 13]
    shop.execute("UPDATE books SET title = 'new', version = 17 WHERE id = 1")
    shop.execute("INSERT INTO books VALUES (6, 'late', 12)")
    fed.run(lag_values=2)
    assert fed.rows("id, title") == [(1, "new"), *[(n, f"t{n}") for n in range(2, 6)], (6, "late")]
    # the key and the cursor have more than 32 bits
    shop.execute("INSERT INTO books VALUES (700218465001, 'far', 5000000000)")
    assert fed.run().metrics["position"]["through"] == 5000000000
    shop.execute("UPDATE books SET title = 'farther', version = 5000000001 WHERE id = 700218465001")
    fed.run(lag_values=1)
    assert fed.rows("id, title")[-1] == (700218465001, "farther")


def test_an_erased_key_remains_in_no_cursor_or_metadata_file(lake: Lake, books: tuple[Fed, sqlite3.Connection]) -> None:
    fed, shop = books
    erased = 700_218_465
    shop.executemany("INSERT INTO books VALUES (?, ?, ?)", [(n, f"t{n}", n) for n in (1, erased - 1, erased)])
    fed.source["cursor_column"] = "id"
    position = fed.run(full_load=True).metrics["position"]
    assert position["through"] == erased
    # a property records the position too
    fed.run(outcome="nothing")
    assert str(erased) in lake.table(fed.name).properties[IDLE_POSITION]
    shop.execute("DELETE FROM books WHERE id = ?", [erased])
    lake.sql(f"CREATE TABLE lake.{fed.name}_keys USING iceberg AS SELECT {erased}L AS id")
    done = erase(lake, erase_rows, fed.name, keys_table=f"{fed.name}_keys")
    assert done.outcome == "done", done.reason
    assert {"metadata"} <= done.metrics["places"][-1]["files"].keys() and done.metrics["metadata_deleted"]

    tables = [lake.table(f"{fed.name}{suffix}") for suffix in ("", ERASED_SUFFIX)]
    files = [file for table in tables for file in Path(table.location.removeprefix("file:")).rglob("*.metadata.json")]
    texts = "".join(file.read_text() for file in files) + str(lake.duckdb_rows(fed.name + ERASED_SUFFIX, "*"))
    assert files and str(erased) not in texts and f"{erased ^ (1 << 63):x}" not in texts

    # the next run continues below the key, and does not read the row as a new one
    shop.execute("INSERT INTO books VALUES (?, 'next', 1)", [erased + 1])
    after = fed.run().metrics
    assert after["position"]["last"] == [erased - 1, erased + 1]
    assert fed.rows("id, title") == [(1, "t1"), (erased - 1, f"t{erased - 1}"), (erased + 1, "next")]


@pytest.mark.soak
def test_equal_rows_without_a_key_are_added_once(books: tuple[Fed, sqlite3.Connection]) -> None:
    fed, shop = books
    shop.execute("CREATE TABLE clicks (what TEXT, version INTEGER)")
    shop.executemany("INSERT INTO clicks VALUES (?, ?)", [("x", 1), ("x", 1), ("y", 1)])
    fed.target |= {"source_table": "clicks", "mode": "append"}
    fed.run(full_load=True)
    shop.executemany("INSERT INTO clicks VALUES (?, ?)", [("x", 1), ("z", 2)])
    fed.run(lag_values=1)
    assert fed.rows("what, version") == [("x", 1), ("x", 1), ("x", 1), ("y", 1), ("z", 2)]


def test_values_that_spark_would_round_or_cut_are_read_as_text(orders: Shop) -> None:
    orders.sql("DROP TABLE IF EXISTS odd")
    orders.sql(
        "CREATE TABLE odd (id int PRIMARY KEY, n numeric, long numeric(50,10), at time, a text[], short numeric(9,2))"
    )
    orders.sql("INSERT INTO odd VALUES (1, 1e-20, 1.5, '10:11:12.123456', '{{a},{b}}', 1.5)")
    orders.sql("INSERT INTO odd VALUES (2, 'NaN')")
    orders.target["source_table"] = "odd"
    assert orders.run(cursor_column="id", full_load=True).metrics["first_run_reads"] == "all rows"
    assert orders.rows('id, n, long, "at", a, short') == [
        (1, "0.00000000000000000001", "1.5000000000", "10:11:12.123456", "{{a},{b}}", Decimal("1.50")),
        (2, "NaN", None, None, None, None),
    ]


def test_rows_rejected_by_clean_are_replayed_after_its_correction(books: tuple[Fed, sqlite3.Connection]) -> None:
    fed, shop = books
    shop.executemany("INSERT INTO books VALUES (?, ?, ?)", [(n, str(n) if n % 9 else "nine", n) for n in range(1, 27)])
    fed.target["clean"] = {"compute": {"number": "CAST(title AS int)"}}
    assert fed.run(full_load=True).metrics["quarantined"] == 2
    shop.execute("UPDATE books SET title = '99', version = 30 WHERE id = 9")
    fed.run()
    fed.target["clean"]["compute"]["number"] = "try_cast(title AS int)"
    report = run(parse_spec({**fed.spec(), "job": "replay_quarantine"}), ingest).tables[0]
    assert (report.outcome, report.metrics["quarantined_still"]) == ("done", 0), report.reason
    assert fed.rows("id, number") == sorted([*((n, n) for n in range(1, 27) if n % 9), (9, 99), (18, None)], key=str)
    assert fed.lake.duckdb_rows(fed.quarantine, "rule") == []


@pytest.mark.soak
@pytest.mark.parametrize(("moment", "then"), [("after_staging", "done"), ("after_commit", "nothing")])
def test_a_killed_run_can_be_repeated(
    books: tuple[Fed, sqlite3.Connection], tmp_path: Path, moment: str, then: str
) -> None:
    fed, shop = books
    shop.executemany("INSERT INTO books VALUES (?, ?, ?)", [(n, "t", n) for n in range(5)])
    assert Run(tmp_path, fed.spec(full_load=True), f"{moment}=kill").was_killed()
    fed.run(full_load=True, outcome=then)
    assert fed.rows("count(*), count(DISTINCT id)") == [(5, 5)]


@pytest.mark.soak
def test_a_run_killed_between_history_and_table_can_be_repeated(orders: Shop, tmp_path: Path) -> None:
    orders.target["history_table"] = orders.lake.new_name("history")
    order(orders, 1, "a", "2026-01-01T05:00:00Z")
    orders.run(DAYS[0], DAYS[1])
    order(orders, 1, "b", "2026-01-02T05:00:00Z")
    assert Run(tmp_path, orders.spec(DAYS[1], DAYS[2]), "after_side_tables=kill").was_killed()
    order(orders, 1, "c", "2026-01-03T05:00:00Z")
    # the next run has another interval: the interrupted one is finished first
    orders.run(DAYS[2], DAYS[3])
    assert orders.rows('"Id", state') == [(1, "c")]
    assert sorted(orders.lake.duckdb_rows(orders.target["history_table"], "state")) == [("a",), ("b",), ("c",)]
    assert orders.lake.table(orders.name).head() is not None


def test_only_sources_that_need_drivers_require_them() -> None:
    source = JdbcSource("jdbc:mysql://db/shop", "changed")
    assert ["mysql" in package for package in source_packages(source)] == [True]
    assert source_packages(None) == []
    assert not any("postgres" in package for package in packages({"type": "hive", "uri": "thrift://h:9083"}))


def test_logins_in_the_address_are_refused() -> None:
    with pytest.raises(SpecError, match="login"):
        JdbcSource("jdbc:mysql://db/shop?user=a&password=b", "changed")
    with pytest.raises(SpecError, match="not the JDBC URL"):
        JdbcSource("jdbc:oracle:thin:@db", "changed")
