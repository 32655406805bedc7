"""Lost answers of the catalog: the table stays readable, has each batch once, and the next run succeeds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from lakecdc.contract.errors import LakecdcError
from lakecdc.contract.spec import parse_spec
from lakecdc.iceberg import lost_answers
from lakecdc.iceberg.jvm import java_class, java_class_name
from lakecdc.ingest.job import ingest
from lakecdc.runtime.run import failure, run
from tests.conftest import Lake
from tests.lakecdc.iceberg.faults import ways
from tests.lakecdc.iceberg.faults.strikes import Fault
from tests.lakecdc.iceberg.faults.work import KINDS, Place, rows_of, some_of
from tests.lakecdc.ingest.apply.support import in_batches
from tests.lakecdc.ingest.histories import History, lines
from tests.on_demand import on_demand


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_answers, "WAIT_SECONDS", 0.01)


@pytest.fixture(scope="module")
def sqlite(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with ways.sqlite(lake, tmp_path_factory.mktemp("lossy_sqlite")) as place:
        yield place


@pytest.fixture(scope="module")
def postgres(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with ways.postgres(lake, tmp_path_factory.mktemp("lossy_postgres")) as place:
        yield place


@pytest.mark.parametrize("lost", on_demand(["answer", "request"], in_ci=["answer"]))
@pytest.mark.parametrize("kind", some_of("append"))
def test_the_connection_ends_at_any_request(postgres: Place, kind: str, lost: str) -> None:
    for nth in count(1):
        name = postgres.create()
        KINDS[kind].prepare(postgres, name)
        before = postgres.stored(name)
        postgres.strikes.arm(Fault(lost, nth=nth, anything=True))
        with suppress(LakecdcError, Py4JJavaError, PySparkException):
            KINDS[kind].act(postgres, name)
        is_over = not postgres.strikes.struck
        postgres.strikes.disarm()
        if postgres.stored(name) != KINDS[kind].after:
            assert not is_over and postgres.stored(name) == before
            KINDS[kind].act(postgres, name)
        postgres.upsert(name, rows_of([100]), deletes=False)
        assert postgres.rows(name) == KINDS[kind].after + rows_of([100])
        if is_over:
            assert nth > 4
            break


@pytest.mark.parametrize(
    "kind",
    ["append", *[pytest.param(k, marks=pytest.mark.soak) for k in ("deletes", "compaction", "manifests", "expiry")]],
)
def test_a_commit_of_unknown_outcome_keeps_its_files(sqlite: Place, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalog stays unreachable after the commit, so none of its files is deleted."""
    monkeypatch.setattr(lost_answers, "CHECKS", 1)
    name = sqlite.create()
    KINDS[kind].prepare(sqlite, name)
    sqlite.strikes.arm(Fault("answer", nth=KINDS[kind].nth, outage=True))
    with pytest.raises((LakecdcError, PySparkException, Py4JJavaError)) as caught:
        KINDS[kind].act(sqlite, name)
    sqlite.strikes.down = False
    assert "did not say whether the commit arrived" in str(caught.value)
    assert sqlite.rows(name) == KINDS[kind].after


@pytest.mark.parametrize("act", on_demand(("property", "alter", "delete"), in_ci=("alter", "delete")))
def test_statements_of_unknown_outcome_are_reported_as_such(
    sqlite: Place, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    monkeypatch.setattr(lost_answers, "CHECKS", 1)
    name = sqlite.create()
    table = sqlite.table(name)
    acts = {
        "property": lambda: table.update_properties({"a": "1"}),
        "alter": lambda: sqlite.statement("ALTER TABLE {} SET TBLPROPERTIES ('a'='1')", name),
        "delete": lambda: sqlite.statement("DELETE FROM {} WHERE id < 2", name),
    }
    sqlite.strikes.arm(Fault("answer", outage=True))
    with pytest.raises((PySparkException, Py4JJavaError)) as caught:
        acts[act]()
    sqlite.strikes.down = False
    report = failure(name, caught.value)
    assert (report.outcome, report.failure_class) == ("failed", "cluster")
    assert report.reason is not None and report.reason.startswith("The catalog did not say whether the commit arrived")
    assert (table.refresh().properties.get("a"), len(sqlite.rows(name))) == (None, 4) if act == "delete" else ("1", 6)


@pytest.mark.parametrize(
    ("mode", "nth"),
    [
        ("upsert", 1),
        *[pytest.param("merge", n, marks=pytest.mark.soak) for n in range(1, 4)],
    ],
)
def test_ingestion_survives_a_lost_answer(postgres: Place, tmp_path: Path, mode: str, nth: int) -> None:
    history, name = History.of(nth, 40), f"shop.{mode}{nth}"
    source = {"type": "files", "path": f"{tmp_path}/*.jsonl", "format": "debezium-json", "records": "kafka"}
    catalog = {"name": postgres.catalog, "properties": dict(postgres.properties)}
    target = {"table": name, "source_table": "t", "key": ["id"], "mode": mode}
    spec = parse_spec({"version": 1, "job": "ingest", "catalog": catalog, "source": source, "target": target})
    first, second = in_batches(history, 20)
    (tmp_path / "1.jsonl").write_text(lines(first))
    run(spec, ingest)
    (tmp_path / "2.jsonl").write_text(lines(second))
    postgres.strikes.arm(Fault("answer", nth=nth))
    assert [t.outcome for t in run(spec, ingest).tables] == ["done"]
    assert run(spec, ingest).tables[0].outcome == "nothing"
    assert postgres.rows(name, "id, name, n, doc") == history.expected()


def test_private_members_of_iceberg_still_exist(lake: Lake) -> None:
    for owner, name in (("spark.SparkCatalog", "icebergCatalog"), ("BaseTable", "ops")):
        assert java_class(lake.spark, f"org.apache.iceberg.{owner}").getDeclaredField(name).getName() == name


def test_table_operations_forward_results_and_exceptions(lake: Lake) -> None:
    name = lake.new_name("forwarded")
    lake.sql(f"CREATE TABLE lake.{name} (id bigint) USING iceberg")
    operations = lake.table(name).java.operations()
    assert "Proxy" in operations.getClass().getName()
    assert operations.current().uuid() == lake.table(name).uuid
    lake.sql(f"DROP TABLE lake.{name}")
    with pytest.raises(Py4JJavaError) as caught:
        operations.refresh()
    assert java_class_name(caught.value) == "NoSuchTableException"
