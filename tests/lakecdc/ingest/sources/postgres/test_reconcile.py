"""Tables compared with the Postgres that feeds them: every type, and with changes in flight."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from lakecdc.contract.report import TableReport
from lakecdc.ingest.job import ingest
from lakecdc.reconcile.job import reconcile
from tests.lakecdc.ingest.sources.postgres.test_types import CASES
from tests.lakecdc.reconcile.support import AT_ONCE, differences
from tests.on_demand import on_demand

from .conftest import Shop


def fed(shop: Shop) -> None:
    (report,) = ingest(shop.lake.spark, shop.spec())
    assert report.outcome in ("done", "nothing"), report.reason


def compared(shop: Shop, chunk_bytes: int = 8192, **options: object) -> TableReport:
    source = {"chunk_bytes": chunk_bytes, "full_load_parallelism": 2}
    (report,) = reconcile(shop.lake.spark, shop.spec(job="reconcile", options={**AT_ONCE, **options}, **source))
    return report


def test_values_of_every_type_agree(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.sql("CREATE TYPE s.mood AS ENUM ('so, so', 'ok')")
    shop.sql("CREATE DOMAIN s.price AS numeric(8,3) CHECK (VALUE > 0)")
    columns = ", ".join(f"c{i} {case[0]}" for i, case in enumerate(CASES))
    rows = [[case[1][n] if n < len(case[1]) else "null" for case in CASES] for n in range(5)]
    shop.target("every")
    shop.sql(f"CREATE TABLE s.every (id timestamptz PRIMARY KEY, {columns})")
    for n, row in enumerate(rows):
        shop.sql(f"INSERT INTO s.every VALUES (to_timestamp({n}) + '1 microsecond', {', '.join(row)})")
    fed(shop)
    # a quiet source advances the table's position as well
    monkeypatch.setattr("lakecdc.reconcile.repair.sleep", lambda _seconds: fed(shop))
    sets = ", ".join(f"c{i} = NULL" for i in range(len(CASES)))
    shop.lake.sql(f"UPDATE lake.{shop.schema}.every SET {sets} WHERE id < TIMESTAMP '1970-01-01 00:00:01+00:00'")
    report = compared(shop, ranges=3, max_wait=600.0)
    # the other rows agree
    ((kind, key, differing),) = differences(report)
    assert report.metrics["rows_source"] == 5
    assert (kind, key, len(differing)) == ("different", '{"id":"1970-01-01T00:00:00.000001Z"}', len(CASES))


def test_in_flight_changes_are_not_mismatches(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    name = shop.target("orders", clean={"rename": {"Id": "number"}, "filter": "state <> 'hidden'"})
    shop.sql(
        'CREATE TABLE s.orders ("Id" int, part text, state text, PRIMARY KEY ("Id", part)) PARTITION BY HASH (part)'
    )
    for leaf in range(2):
        shop.sql(f"CREATE TABLE s.o{leaf} PARTITION OF s.orders FOR VALUES WITH (MODULUS 2, REMAINDER {leaf})")
    shop.sql("INSERT INTO s.orders SELECT i, 'p' || i % 3, CASE i % 7 WHEN 0 THEN 'hidden' ELSE 'new' END "
             "FROM generate_series(1, 400) i")  # fmt: skip
    fed(shop)
    shop.lake.sql(
        f"MERGE INTO lake.{name} t USING (SELECT explode(array(10, 20, 30)) AS n) s ON t.number = s.n "
        "WHEN MATCHED AND n = 10 THEN DELETE WHEN MATCHED AND n = 20 THEN UPDATE SET state = '' "
        "WHEN MATCHED THEN UPDATE SET part = 'q'"
    )
    planted = [
        ("different", '{"number":20,"part":"p2"}', ("state",)),
        ("missing", '{"number":10,"part":"p1"}', ()),
        ("missing", '{"number":30,"part":"p0"}', ()),
        ("unexpected", '{"number":30,"part":"q"}', ()),
    ]
    shop.sql("UPDATE s.orders SET state = 'paid' WHERE \"Id\" BETWEEN 100 AND 104")
    shop.sql('DELETE FROM s.orders WHERE "Id" = 200')
    shop.sql('UPDATE s.orders SET "Id" = 500 WHERE "Id" = 201')
    shop.sql("INSERT INTO s.orders VALUES (1000, 'p', 'new')")

    report = compared(shop, ranges=8)
    assert differences(report) == [], "differences are reported only after the table was fed past the reading"
    assert (report.outcome, report.metrics["undecided"]) == ("skipped", 13)
    assert "not fed past the moment of reading" in str(report.reason)

    again = []

    def meanwhile(_seconds: float) -> None:
        # the row changes again after the first wait
        again.append(1)
        if len(again) == 1:
            shop.sql("UPDATE s.orders SET state = 'late' WHERE \"Id\" = 102")
        fed(shop)

    monkeypatch.setattr("lakecdc.reconcile.repair.sleep", meanwhile)
    report = compared(shop, ranges=8, max_wait=600.0, repair=True, dry_run=True)
    assert differences(report) == planted
    assert (report.outcome, report.metrics["repaired"]) == ("skipped", 0)
    assert "a run without dry_run would reload 4 of them" in str(report.reason)
    assert (report.metrics["in_flight"], report.metrics["undecided"]) == (9, 0)
    assert report.metrics["ranges_different"] < 8 and report.metrics["looks"] == 2


def test_a_table_without_a_position_is_read_again(shop: Shop) -> None:
    name = shop.target("plain")
    shop.sql("CREATE TABLE s.plain (id int PRIMARY KEY, v text)")
    shop.sql("INSERT INTO s.plain VALUES (1, 'a'), (2, NULL), (3, '')")
    shop.lake.sql(f"CREATE TABLE lake.{name} (id int, v string) USING iceberg")
    shop.lake.sql(f"INSERT INTO lake.{name} VALUES (1, 'a'), (2, ''), (3, NULL)")
    report = compared(shop, repair=True)
    assert differences(report) == [("different", '{"id":2}', ("v",)), ("different", '{"id":3}', ("v",))]
    assert (report.outcome, report.failure_class) == ("failed", "bad input")
    reason = "could not be reloaded: Cannot reload single rows: the table does not record how far it was fed"
    assert reason in str(report.reason)


#: column values of a row, by the source
WIDE = {
    "n": ("int", "i"),
    "amount": ("numeric(12,2)", "i / 4.0"),
    "exact": ("numeric", "i / 8.0"),
    "name": ("text", "'name ' || i"),
    "note": ("text", "CASE WHEN i % 2 = 0 THEN 'note' END"),
    "doc": ("jsonb", "jsonb_build_object('i', i, 'n', null)"),
    "tags": ("int[]", "ARRAY[i, null]"),
    "day": ("date", "'2026-01-01'::date + i % 1000"),
    "at": ("timestamptz", "'2026-01-01 00:00Z'::timestamptz + i * '1 second'::interval"),
    "local": ("timestamp", "'2026-01-01'::timestamp + i * '1 second'::interval"),
    "raw": ("bytea", "convert_to('raw ' || i, 'UTF8')"),
    "x": ("double precision", "i / 3.0"),
    "flag": ("boolean", "i % 2 = 0"),
}
#: changes to a column in the table
SPOILT = [
    *(("n", "n + 1"), ("n", "NULL"), ("amount", "amount + 0.01"), ("exact", "concat(exact, '0')"), ("name", "''")),
    *(("name", "upper(name)"), ("name", "concat(name, ' ')"), ("note", "coalesce(concat(note, '!'), '')")),
    *(("doc", "replace(doc, 'null', '0')"), ("tags", "replace(tags, 'NULL', '0')"), ("day", "day + 1")),
    *(("at", "at + INTERVAL '0.000001' SECOND"), ("local", "local + INTERVAL '1' HOUR"), ("raw", "CAST('' AS binary)")),
    *(("x", "x + 1e-6"), ("flag", "NOT flag"), ("flag", "NULL")),
]
MISSING, UNEXPECTED, DUPLICATE = range(len(SPOILT), len(SPOILT) + 3)


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("rows", on_demand([20_000, 300_000, 10_000_000], in_ci=[20_000]))
def test_a_thousand_differences_of_twenty_kinds_are_reported_during_writes(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    each, behind = rows // 1000, 2 * rows
    name = shop.target("wide", format_version=3)
    columns, values = ", ".join(f"{c} {kind}" for c, (kind, _) in WIDE.items()), ", ".join(v for _, v in WIDE.values())
    shop.sql(f"CREATE TABLE s.wide (id bigint PRIMARY KEY, {columns})")
    shop.sql(f"INSERT INTO s.wide SELECT i, {values} FROM generate_series(1, {rows}) i")
    fed(shop)
    # every so many rows one is spoilt, each time in another way; an unexpected one is a copy under another key
    kind, every = f"CAST(id DIV {each} % 20 AS int)", f"id % {each} = 7"
    sets = ", ".join(
        f"{c} = CASE {kind}{''.join(f' WHEN {k} THEN {sql}' for k, (of, sql) in enumerate(SPOILT) if of == c)} "
        f"ELSE {c} END"
        for c in WIDE
    )
    shop.lake.sql(f"INSERT INTO lake.{name} SELECT * FROM lake.{name} WHERE {every} AND {kind} = {DUPLICATE}")
    shop.lake.sql(
        f"INSERT INTO lake.{name} SELECT s.* FROM (SELECT id + {behind} AS id, * EXCEPT (id) FROM lake.{name} "
        f"WHERE {every} AND {kind} = {UNEXPECTED}) s"
    )
    shop.lake.sql(f"DELETE FROM lake.{name} WHERE {every} AND {kind} = {MISSING}")
    shop.lake.sql(f"UPDATE lake.{name} SET {sets} WHERE {every} AND id < {behind} AND {kind} < {len(SPOILT)}")
    expected = sorted(
        ("missing", f'{{"id":{i}}}', ()) if k == MISSING
        else ("unexpected", f'{{"id":{i + behind}}}', ()) if k == UNEXPECTED
        else ("duplicate", f'{{"id":{i}}}', ()) if k == DUPLICATE
        else ("different", f'{{"id":{i}}}', (SPOILT[k][0],))
        for i in range(7, rows, each) for k in [i // each % 20]
    )  # fmt: skip
    monkeypatch.setattr("lakecdc.reconcile.job.MAX_REPORTED", 2000)
    monkeypatch.setattr("lakecdc.reconcile.repair.sleep", lambda _seconds: fed(shop))
    done = Event()

    def write() -> None:
        rng = random.Random(1)
        while not done.wait(0.05):
            i = rng.randrange(1000) * each + rng.randrange(8, each - 1)
            shop.sql(f"UPDATE s.wide SET n = n + 1, name = 'changed' WHERE id = {i}")
            shop.sql(f"DELETE FROM s.wide WHERE id = {i + 1}")

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        # the longer the first comparison takes, the more rows are in flight
        report = compared(shop, max_wait=900.0, max_keys=100_000, chunk_bytes=64 * 1024 * 1024)
        done.set()
        writing.result()
    assert differences(report) == expected
    assert report.metrics["in_flight"] > 0
