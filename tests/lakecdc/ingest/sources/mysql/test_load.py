"""An interrupted full load is continued by the next run, whatever has changed at the source meanwhile."""

from __future__ import annotations

import random
import re
import time
from typing import Any

import pytest

from lakecdc.contract.report import TableReport
from lakecdc.ingest.job import ingest
from lakecdc.ingest.sources.mysql.snapshot import Chunk, _shares
from tests.lakecdc.ingest.killing import act_at
from tests.lakecdc.ingest.sources.model import differs

from .conftest import Shop

pytestmark = pytest.mark.services

PARTS: dict[str, Any] = {"chunk_rows": 100, "full_load_commit_rows": 300, "full_load_parallelism": 2}


def make(shop: Shop, **target: Any) -> str:
    """Create a table of ten chunks, which a load writes in four commits."""
    name = shop.target("big", **target)
    shop.sql("CREATE TABLE s.big (id int PRIMARY KEY, n int, body text, m int)")
    shop.sql("INSERT INTO s.big SELECT seq, 0, md5(seq), seq FROM seq_1_to_1000")
    return name


def run(shop: Shop, monkeypatch: pytest.MonkeyPatch, moment: str = "") -> TableReport:
    """Run the job once; it fails at a moment if one is given."""
    act_at(monkeypatch, f"{moment}=raise" if moment else "")
    return ingest(shop.lake.spark, shop.spec(**PARTS))[0]


def disturb(shop: Shop, seed: int) -> None:
    """Change rows of every kind all over the table; rows move between chunks read and not yet read."""
    rng = random.Random(seed)
    for number in range(8):
        low, far = rng.randrange(1000), rng.choice([-2000, 2000]) * (seed * 10 + number)
        shop.sql(
            f"UPDATE s.big SET n = n + 1 WHERE id BETWEEN {low} AND {low + 50}",
            f"DELETE FROM s.big WHERE id BETWEEN {low} AND {low + 9}",
            f"UPDATE IGNORE s.big SET id = id + {far} WHERE id BETWEEN {low + 20} AND {low + 30}",
            f"UPDATE IGNORE s.big SET id = 1000 - id WHERE id BETWEEN {low + 30} AND {low + 40}",
            f"REPLACE INTO s.big (id, n, body) VALUES ({low}, {number}, 'again'), ({-number}, {seed}, 'new')",
        )


@pytest.mark.parametrize(
    ("moment", "left"),
    [
        ("before_commit@2", 7),
        *(
            pytest.param(moment, left, marks=pytest.mark.soak)
            for moment, left in [
                ("after_chunks", 10),
                ("after_staging@2", 7),
                ("after_commit@1", 7),
                ("after_commit@3", 1),
                ("after_commit@4", 0),
            ]
        ),
    ],
)
def test_an_interrupted_load_continues(shop: Shop, monkeypatch: pytest.MonkeyPatch, moment: str, left: int) -> None:
    name = make(shop, partition_by=["bucket(2, id)"])
    try:
        assert run(shop, monkeypatch, moment).outcome == "failed"
    except RuntimeError as error:
        assert moment in str(error)
    loaded = 1000 - 100 * left
    assert loaded == 0 or len(shop.lake.duckdb_rows(name, "id")) == loaded
    shop.sql("ALTER TABLE s.big ADD c int DEFAULT 7")
    disturb(shop, 1)
    # the changes move the ends of the chunks, not what was read
    report = run(shop, monkeypatch)
    assert report.outcome == "done", report.reason
    assert abs(report.metrics.get("full_load_chunks", 0) - left) <= 1
    assert not differs(shop, name, "id, n, body, m, c")
    assert not {"load", "loaded"} & set(report.metrics["position"])
    assert run(shop, monkeypatch).outcome == "nothing"


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mode", ["upsert", "merge"])
def test_a_load_may_be_interrupted_repeatedly(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, mode: str, seed: int
) -> None:
    name, rng = make(shop, mode=mode), random.Random(seed)
    for lap in range(8):
        moment = rng.choice(["after_commit", "before_commit@2", "after_commit@2", "after_staging@2"])
        run(shop, monkeypatch, moment)
        disturb(shop, seed * 100 + lap)
    assert run(shop, monkeypatch).outcome in ("done", "nothing")
    assert not differs(shop, name, "id, n, body, m")


@pytest.mark.parametrize(
    ("columns", "key", "rows"),
    [
        ("k varchar(20) COLLATE utf8mb4_general_ci", "k", "concat('Kä''\\\\', seq)"),
        pytest.param("k varbinary(9)", "k", "unhex(hex(seq))", marks=pytest.mark.soak),
        pytest.param("k decimal(20,3)", "k", "seq / 7", marks=pytest.mark.soak),
        pytest.param("k datetime(6)", "k", "'2024-01-01' + INTERVAL seq * 1001 MICROSECOND", marks=pytest.mark.soak),
        ("k int, l int", "k, l", "seq % 30, seq"),
    ],
)
def test_loads_continue_with_keys_of_every_type(shop: Shop, columns: str, key: str, rows: str) -> None:
    shop.sql(f"CREATE TABLE s.t ({columns}, v int, PRIMARY KEY ({key}))")
    shop.sql(f"INSERT INTO s.t SELECT {rows}, seq FROM seq_1_to_1000")
    name = shop.target("t")
    for _ in range(2):
        shop.run(rounds=1, **PARTS)
    assert 400 <= len(shop.model.rows(name, "v")) <= 750
    shop.run(**PARTS)
    assert sorted(shop.model.rows(name, "v")) == [(i,) for i in range(1, 1001)]
    loads = [len(events) for batch, events in shop.model.batches if batch.full_load]
    assert sum(loads) == 1000 and len(loads) >= 4, "no row was read twice"


def test_a_load_without_a_commit_starts_again(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    name = make(shop)
    assert run(shop, monkeypatch, "before_commit").outcome == "failed"
    # the table already exists; this is not a rename
    shop.sql("ALTER TABLE s.big DROP n", "ALTER TABLE s.big ADD word varchar(9) DEFAULT 'w' AFTER id")
    report = run(shop, monkeypatch)
    assert (report.outcome, report.metrics["full_load_chunks"]) == ("done", 10), report.reason
    assert not differs(shop, name, "id, word, body, m")


@pytest.mark.parametrize("mode", ["append", pytest.param("history", marks=pytest.mark.soak)])
def test_append_tables_are_loaded_in_one_commit(shop: Shop, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    name = make(shop, mode=mode)
    assert run(shop, monkeypatch, "before_commit").outcome == "failed"
    report = run(shop, monkeypatch)
    assert (report.outcome, report.metrics["commits"]) == ("done", 1)
    assert len(shop.lake.duckdb_rows(name, "id")) == 1000


@pytest.mark.parametrize(
    ("statement", "pattern"),
    [
        pytest.param(
            "ALTER TABLE s.big RENAME COLUMN body TO text",
            "'body' of .* was renamed or dropped while it was being loaded",
            marks=pytest.mark.soak,
        ),
        ("ALTER TABLE s.big RENAME COLUMN m TO n, RENAME COLUMN n TO m", "renamed columns while it was being"),
        pytest.param(
            "ALTER TABLE s.big MODIFY id varchar(20)",
            "changed its column 'id', by which it is ordered",
            marks=pytest.mark.soak,
        ),
        ("", "no longer has the log file"),
    ],
)
def test_a_load_that_cannot_continue_stops_the_table(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, statement: str, pattern: str
) -> None:
    make(shop)
    assert run(shop, monkeypatch, "after_commit").outcome == "failed"
    if statement:
        shop.sql(statement)
    else:
        begun = shop.sql("SHOW MASTER STATUS")[0][0]
        shop.sql("FLUSH BINARY LOGS")
        deadline = time.monotonic() + 30
        while shop.sql("SHOW BINARY LOGS")[0][0] <= begun:
            assert time.monotonic() < deadline
            shop.sql(f"PURGE BINARY LOGS TO '{shop.sql('SHOW MASTER STATUS')[0][0]}'")
    report = run(shop, monkeypatch)
    assert report.outcome == "failed"
    assert re.search(f"{pattern}.*a full load is needed", str(report.reason)), report.reason


def test_a_commit_ends_at_a_short_bound() -> None:
    chunks = [Chunk("a", "x" * 2000), Chunk("b", "y"), Chunk("c", "z"), Chunk("d")]
    assert [[c.condition for c in share] for share in _shares(chunks, 1)] == [["a", "b"], ["c"], ["d"]]
    assert [[c.condition for c in share] for share in _shares(chunks, 3)] == [["a", "b", "c"], ["d"]]
