"""MariaDB through the log into a table: stopped at each moment and run again, the table equals the source."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import parse_spec
from lakecdc.ingest.job import ingest
from lakecdc.runtime import failpoints
from lakecdc.runtime.run import run
from local_services.mariadb import MariaDB
from tests.conftest import Lake
from tests.lakecdc.ingest.killing import Run, act_at
from tests.on_demand import on_demand

pytestmark = pytest.mark.services

#: moments of a run with changes, and whether the table then contains them
MOMENTS = {
    "before_staging": False,
    "after_staging": False,
    "before_commit": False,
    "after_commit": True,
    "before_round_release": True,
}
FAILED = on_demand(MOMENTS, in_ci=("before_round_release",))
LOAD_MOMENTS = ("after_snapshot_place", "after_chunks", "after_staging", "before_commit")
FAILED_IN_LOAD = on_demand(LOAD_MOMENTS, in_ci=("after_chunks",))
COLUMNS = "id, name, amount, notes"


class Shop:
    """One table in a real MariaDB and its copy in the lake."""

    def __init__(self, lake: Lake, server: MariaDB) -> None:
        self.lake, self.name, self.number = lake, lake.new_name("shop"), 0
        self.session = server.connect()
        self.sql(
            "CREATE DATABASE shop",
            "USE shop",
            "CREATE TABLE shop.orders (id bigint PRIMARY KEY, name text, amount decimal(12,2), notes longtext)",
            "INSERT INTO shop.orders SELECT seq, concat('name ', seq), seq / 7, repeat(md5(seq), 40) FROM seq_1_to_300",
        )
        login = {"host": "127.0.0.1", "port": server.port, "user": "root"}
        source = {"type": "mysql", **login, "chunk_rows": 90, "full_load_commit_rows": 180}
        target = {"table": self.name, "source_table": "shop.orders", "partition_by": ["bucket(2, id)"]}
        self.spec: dict[str, Any] = lake.spec("ingest", source=source, target=target)

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements and return the rows of the last one."""
        with self.session.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    def ingest(self, spec: dict[str, Any] | None = None) -> TableReport:
        """Run the job in this process."""
        return run(parse_spec(spec or self.spec), ingest).tables[0]

    def change(self) -> None:
        """Write updates, deletes, a key change and a re-insert after a delete, inside and outside a transaction."""
        self.number += 1
        n = self.number
        self.sql(
            "BEGIN",
            f"UPDATE shop.orders SET amount = amount + 1 WHERE id % 5 = {n % 5}",
            f"UPDATE shop.orders SET id = id + 1000 WHERE id = {10 + n}",
            f"DELETE FROM shop.orders WHERE id IN ({100 + n}, {200 + n})",
            "COMMIT",
            f"INSERT INTO shop.orders VALUES ({100 + n}, 'again', 1, null), ({5000 + n}, 'new', 2, 'x')",
            "FLUSH BINARY LOGS",
            f"UPDATE shop.orders SET name = 'twice' WHERE id = {5000 + n}",
        )

    def assert_equal(self, name: str = "") -> None:
        """Compare row by row, without duplicates; DuckDB reads the table."""
        expected = Counter(self.sql(f"SELECT {COLUMNS} FROM shop.orders"))
        assert Counter(self.lake.duckdb_rows(name or self.name, COLUMNS)) == expected


@pytest.fixture(scope="module")
def shop(lake: Lake) -> Iterator[Shop]:
    """Start a server and load the table in full."""
    folder = Path(tempfile.mkdtemp(prefix="lakecdc-kills-"))
    folder.chmod(0o755)
    try:
        with MariaDB(folder / "data") as server:
            started = Shop(lake, server)
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


@pytest.mark.parametrize("moment", FAILED_IN_LOAD)
def test_a_failed_full_load_is_repeated_without_loss(
    lake: Lake, shop: Shop, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    name = lake.new_name("shop")
    spec = {**shop.spec, "target": {**shop.spec["target"], "table": name}}
    act_at(monkeypatch, f"{moment}=raise")
    report = run(parse_spec(spec), ingest)
    assert f"fail point {moment}" in f"{report.error} {[table.reason for table in report.tables]}"
    monkeypatch.delenv(failpoints.VARIABLE)
    shop.change()
    assert shop.ingest(spec).outcome == "done"
    shop.assert_equal(name)


@pytest.mark.soak
@pytest.mark.parametrize("moment", ["after_staging", "after_commit"])
def test_a_killed_run_is_repeated_without_loss(shop: Shop, tmp_path: Path, moment: str) -> None:
    shop.change()
    assert Run(tmp_path, shop.spec, f"{moment}=kill").was_killed()
    shop.change()
    assert shop.ingest().outcome == "done"
    shop.assert_equal()
    assert shop.ingest().outcome == "nothing"


def test_a_killed_full_load_is_repeated_without_loss(lake: Lake, shop: Shop, tmp_path: Path) -> None:
    name = lake.new_name("shop")
    spec = {**shop.spec, "target": {**shop.spec["target"], "table": name}}
    assert Run(tmp_path, spec, "before_commit@2=kill").was_killed()
    first = shop.lake.duckdb_rows(name, "max(id)")[0][0]
    assert first < shop.sql("SELECT max(id) FROM shop.orders")[0][0], "the first part is loaded"
    shop.change()
    report = shop.ingest(spec)
    assert report.outcome == "done" and report.metrics["full_load_chunks"] == 2, report
    shop.assert_equal(name)


@pytest.mark.soak
def test_an_overtaken_run_is_refused(shop: Shop, tmp_path: Path) -> None:
    shop.change()
    flag = tmp_path / "paused"
    paused = Run(tmp_path, shop.spec, f"before_commit=pause:{flag}")
    paused.wait_for(flag)
    shop.change()
    assert shop.ingest().outcome == "done"
    flag.unlink()
    assert paused.report()["tables"][0]["outcome"] == "conflict"
    shop.assert_equal()
