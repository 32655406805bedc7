"""Postgres through the log into a table: stopped at each of five moments and run again, the table equals the source."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import parse_spec
from lakecdc.ingest.job import ingest
from lakecdc.runtime import failpoints
from lakecdc.runtime.run import run
from local_services.postgres import Postgres
from tests.conftest import Lake
from tests.lakecdc.ingest.killing import Run, act_at
from tests.on_demand import on_demand

#: moments of a run with changes, and whether the table then contains them
MOMENTS = {
    "before_staging": False,
    "after_staging": False,
    "before_commit": False,
    "after_commit": True,
    "before_round_release": True,
}
# a separate process costs a start of Spark: CI kills one, and tests the other moments by fail points
FAILED = on_demand(MOMENTS, in_ci=("before_round_release",))
KILLED = on_demand(MOMENTS, in_ci=("after_commit",))
COLUMNS = "id, name, amount, notes"


class Shop:
    """One table in a real Postgres and its copy in the lake."""

    def __init__(self, lake: Lake, dsn: str) -> None:
        self.lake, self.name, self.number = lake, lake.new_name("shop"), 0
        self.session = psycopg.connect(dsn, autocommit=True)
        self.session.execute("CREATE TABLE orders (id bigint PRIMARY KEY, name text, amount numeric(12,2), notes text)")
        self.session.execute("ALTER TABLE orders ALTER notes SET STORAGE EXTERNAL")
        self.session.execute(
            "INSERT INTO orders SELECT i, 'name ' || i, i / 7.0, repeat(md5(i::text), 400) "
            "FROM generate_series(1, 300) i"
        )
        source = {"type": "postgres", "dsn": dsn, "slot": "kills"}
        target = {"table": self.name, "source_table": "public.orders", "partition_by": ["bucket(2, id)"]}
        self.spec: dict[str, Any] = lake.spec("ingest", source=source, target=target)

    def ingest(self) -> TableReport:
        """Run the job in this process."""
        report = run(parse_spec(self.spec), ingest)
        assert not report.error, report.error
        return report.tables[0]

    def change(self) -> None:
        """Write updates that leave the large value unchanged, deletes, a key change and a re-insert after a delete."""
        self.number += 1
        seed = self.number
        with self.session.transaction():
            self.session.execute("UPDATE orders SET amount = amount + 1 WHERE id %% 5 = %s", (seed % 5,))
            self.session.execute("UPDATE orders SET id = id + 1000 WHERE id = %s", (10 + seed,))
            self.session.execute("DELETE FROM orders WHERE id IN (%s, %s)", (100 + seed, 200 + seed))
        self.session.execute(
            "INSERT INTO orders VALUES (%s, 'again', 1, null), (%s, 'new', 2, 'x')", (100 + seed, 5000 + seed)
        )

    def assert_equal(self) -> None:
        """Compare row by row; DuckDB reads the table."""
        expected = self.session.execute(f"SELECT {COLUMNS} FROM orders ORDER BY id").fetchall()
        assert sorted(self.lake.duckdb_rows(self.name, COLUMNS)) == expected


@pytest.fixture(scope="module")
def shop(lake: Lake) -> Iterator[Shop]:
    """Start a server and load the table in full."""
    folder = Path(tempfile.mkdtemp(prefix="lakecdc-kills-"))
    folder.chmod(0o755)
    try:
        with Postgres(folder / "data") as server:
            started = Shop(lake, server.dsn)
            assert started.ingest().outcome == "done"
            started.assert_equal()
            yield started
            started.session.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("moment", FAILED)
def test_a_failed_run_is_repeated_without_loss(shop: Shop, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    shop.change()
    act_at(monkeypatch, f"{moment}=raise")
    report = run(parse_spec(shop.spec), ingest)
    assert f"fail point {moment}" in f"{report.error} {[table.reason for table in report.tables]}"
    monkeypatch.delenv(failpoints.VARIABLE)
    assert shop.ingest().outcome == ("nothing" if MOMENTS[moment] else "done")
    shop.assert_equal()


@pytest.mark.parametrize("moment", KILLED)
def test_a_killed_run_is_repeated_without_loss(shop: Shop, tmp_path: Path, moment: str) -> None:
    shop.change()
    assert Run(tmp_path, shop.spec, f"{moment}=kill").was_killed()
    assert shop.ingest().outcome == ("nothing" if MOMENTS[moment] else "done")
    shop.assert_equal()


def test_a_killed_full_load_is_repeated_without_loss(lake: Lake, shop: Shop, tmp_path: Path) -> None:
    other = {**shop.spec["target"], "table": lake.new_name("shop")}
    spec = {**shop.spec, "source": {**shop.spec["source"], "slot": "kills_in_load"}, "target": other}
    assert Run(tmp_path, spec, "before_commit=kill").was_killed()
    shop.change()
    report = run(parse_spec(spec), ingest)
    assert [t.outcome for t in report.tables] == ["done"], report
    assert report.tables[0].metrics["full_load_written_by"] == "tasks"
    expected = shop.session.execute(f"SELECT {COLUMNS} FROM orders ORDER BY id").fetchall()
    assert sorted(lake.duckdb_rows(other["table"], COLUMNS)) == expected


def test_a_concurrent_second_run_is_refused(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.change()
    flag = tmp_path / "paused"
    act_at(monkeypatch, f"before_commit=pause:{flag}")
    with ThreadPoolExecutor(1) as pool:
        paused = pool.submit(shop.ingest)
        while not flag.exists():
            assert not paused.done(), paused.result()
            time.sleep(0.05)
        second = run(parse_spec(shop.spec), ingest)
        flag.unlink()
        assert second.exit_code() == 3 and "Another run is reading the slot" in (second.error or "")
        assert paused.result().outcome == "done"
    shop.assert_equal()
