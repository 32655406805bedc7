"""A wide row fed by the log of a database and a job of files, each with its own position."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lakecdc.contract.report import TableReport
from tests.lakecdc.ingest.apply.support import Feed
from tests.lakecdc.ingest.merging.test_ingest import Log
from tests.lakecdc.ingest.sources.model import run

from .conftest import Shop

_COLUMNS = "id, name, score, city"


def test_a_log_and_files_feed_one_row(shop: Shop, tmp_path: Path) -> None:
    shop.sql("CREATE TABLE s.person (id int PRIMARY KEY, name text)")
    shop.sql("INSERT INTO s.person SELECT i, 'n' || i FROM generate_series(1, 4) i")
    person = {"columns": ["name", "score"], "source_table": "person"}
    groups = [person, {"columns": ["city"], "source_table": "address"}]
    settings = {"key": ["id"], "merge": {"groups": groups}, "columns": {"id": "int"}, "mode": "upsert"}
    name = shop.target("wide", **settings, feed="people", source_table=f"{shop.schema}.person")
    places = Feed(shop.lake, tmp_path, {**settings, "source_tables": ["person", "address"]}, name)
    log = Log()

    def people(outcome: str = "done") -> TableReport:
        report = run(shop, options={"quarantine_table": "{namespace}.people_quarantine"})[name]
        assert report.outcome == outcome, report.reason
        return report

    def rows(columns: str = _COLUMNS) -> list[tuple[Any, ...]]:
        return sorted(shop.lake.duckdb_rows(name, columns))

    places.take([log.event("address", "c", {"id": i, "city": f"c{i}"}) for i in (1, 2, 9)])
    # the full load is merged with the existing rows
    people()
    both = [(1, "n1", "c1"), (2, "n2", "c2"), (3, "n3", None), (4, "n4", None), (9, None, "c9")]
    assert rows("id, name, city") == both
    shop.sql("UPDATE s.person SET name = 'new' WHERE id = 1; DELETE FROM s.person WHERE id IN (2, 3)")
    shop.sql("ALTER TABLE s.person ADD COLUMN score int DEFAULT 5; UPDATE s.person SET id = 9, score = 7 WHERE id = 4")
    places.take([log.event("address", "u", {"id": 1, "city": "Rome"}), log.event("address", "d", {"id": 2})])
    people()
    # older rows have the default where the source has a row
    assert rows() == [(1, "new", 5, "Rome"), (9, "n4", 7, "c9")]
    people("nothing")
    assert places.run().outcome == "nothing"
    places.take([log.event("address", "u", {"id": 3, "city": "Bonn"})])
    shop.sql("DELETE FROM s.person WHERE id = 1")
    # quiet meanwhile; the other job's commit has not lost the position
    people()
    assert rows() == [(1, None, None, "Rome"), (3, None, None, "Bonn"), (9, "n4", 7, "c9")]
