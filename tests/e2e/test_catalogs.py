"""Operations that jobs and the provider need, with every kind of catalog (docs/operations/catalogs.md)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import Connection

from airflow_provider_lakecdc.audit import Application, Run
from airflow_provider_lakecdc.audit import history as history_of_jobs
from airflow_provider_lakecdc.audit.commit import append_once
from airflow_provider_lakecdc.audit.lake_tables import AUDIT
from airflow_provider_lakecdc.audit.outbox import Batch
from airflow_provider_lakecdc.hooks.catalog import CatalogConnection, catalog_from_connection
from airflow_provider_lakecdc.lake.status import tables_of
from airflow_provider_lakecdc.lake.tables import load_table
from lakecdc.contract.errors import ConflictError, SourceUnavailableError, SpecError
from lakecdc.contract.report import JobReport, TableReport, now
from lakecdc.contract.spec import Catalog
from lakecdc.iceberg import lost_answers, refs
from lakecdc.iceberg.commit import RowChanges, append_changes
from lakecdc.iceberg.definition import TableDefinition, create_table
from lakecdc.iceberg.fence import PositionFence
from lakecdc.iceberg.staging import stage_rows
from lakecdc.iceberg.table import exists
from lakecdc.metadata import names
from lakecdc.runtime.session import use_catalog
from local_services.catalogs import Nessie
from local_services.s3 import S3Server
from tests.conftest import Lake
from tests.lakecdc.iceberg.faults.strikes import Fault
from tests.lakecdc.iceberg.faults.ways import WAYS
from tests.lakecdc.iceberg.faults.work import KINDS, OLD, Place, rows_of, survive

_WITHOUT_SERVICES = {"sqlite", "postgres", "object_store"}


def catalogs(kinds: Mapping[str, Sequence[str]] | None = None) -> list[Any]:
    """Return every catalog, or every one with every kind of commit.

    :param kinds: kinds of commits in CI, by catalog; the others run on demand.
    """
    every = [(way, [] if way in _WITHOUT_SERVICES else [pytest.mark.services]) for way in WAYS]
    if kinds is None:
        return [pytest.param(way, marks=marks) for way, marks in every]
    return [
        pytest.param(way, kind, marks=marks if kind in kinds.get(way, ()) else [*marks, pytest.mark.soak])
        for way, marks in every
        for kind in KINDS
    ]


DEFINITION = TableDefinition([("id", "bigint", True)], properties={"a": "1"}, identifier=["id"])


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_answers, "WAIT_SECONDS", 0.01)


@pytest.fixture(scope="module")
def place(request: pytest.FixtureRequest, lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with WAYS[request.param](lake, tmp_path_factory.mktemp(f"calls_{request.param}")) as place:
        yield place


def connection(place: Place) -> CatalogConnection:
    """Return the catalog as an Airflow connection opens it."""
    extra = {"catalog_name": place.catalog, **place.direct}
    return catalog_from_connection(
        Connection(conn_id="lake", conn_type="iceberg", host=extra.pop("uri", None), extra=json.dumps(extra))
    )


@pytest.mark.parametrize("place", catalogs(), indirect=True)
def test_a_table_is_created_listed_and_dropped(place: Place) -> None:
    """Lose the answer to the creation."""
    spark, name = place.lake.spark, place.new_name()
    place.strikes.arm(Fault("answer"))
    if place.direct["type"] == "hive":
        # its client retries, and Iceberg then deletes the metadata of the existing table
        with pytest.raises(SourceUnavailableError, match="that the metadata file that it names is intact"):
            create_table(spark, place.catalog, name, DEFINITION)
        place.statement("DROP TABLE {}", name)
    created = create_table(spark, place.catalog, name, DEFINITION)
    assert place.strikes.struck and created.identifier_columns == ["id"] and created.properties["a"] == "1"
    with closing(connection(place).load()) as opened:
        seen = load_table(opened, name)
        assert seen is not None and str(seen.metadata.table_uuid) == created.uuid
        assert name in tables_of(connection(place), "shop") and ("shop",) in opened.list_namespaces()
        place.statement("DROP TABLE {}", name)
        assert load_table(opened, name) is None and not exists(spark, place.catalog, name)
        assert name not in tables_of(connection(place), "shop")


def interrupt(place: Place, act: Callable[[], object]) -> Callable[[Any], None]:
    """Let other writers act while the next commit is on its way to the catalog.

    :return: called before the commit: Hive locks others out while one is on its way, so they act earlier.
    """
    left = [act]

    def once(*_: Any) -> None:
        if left:
            left.pop()()

    if place.direct["type"] == "hive":
        return once
    place.strikes.arm(Fault(meanwhile=once))
    return lambda _: None


@pytest.mark.parametrize("place", catalogs(), indirect=True)
def test_concurrent_commits_of_others_are_not_lost(place: Place) -> None:
    name = place.create()
    table, other, position = place.table(name), place.table(name), place.position(place.table(name))
    (ours,), (theirs,) = (stage_rows(each, place.frame(rows_of([n]))) for each, n in ((table, 10), (other, 11)))
    then = interrupt(place, other.java.newAppend().appendFile(theirs).commit)
    append_changes(table, RowChanges([ours]), PositionFence(position), then=then)
    assert place.rows(name) == [*OLD, *rows_of([10, 11])]


@pytest.mark.parametrize("place", catalogs(), indirect=True)
def test_of_two_runs_from_one_position_one_commits(place: Place) -> None:
    name = place.create()
    table, other, position = place.table(name), place.table(name), place.position(place.table(name))
    (late,), (first,) = (stage_rows(each, place.frame(rows_of([n]))) for each, n in ((table, 10), (other, 11)))
    changes = RowChanges([first], summary={names.POSITIONS: "further"})
    then = interrupt(place, lambda: append_changes(other, changes, PositionFence(position)))
    with pytest.raises(ConflictError, match="another run has moved the source positions"):
        append_changes(table, RowChanges([late]), PositionFence(position), then=then)
    assert place.rows(name) == [*OLD, *rows_of([11])]


@pytest.mark.parametrize("place", catalogs(), indirect=True)
def test_tags_and_branches_are_created_listed_and_dropped(place: Place) -> None:
    name = place.create()
    table = place.table(name)
    head = table.head()
    assert head is not None
    refs.change_refs(table, {"day": refs.Ref(head.id, "tag"), "aside": refs.Ref(head.id, "branch")})
    with closing(connection(place).load()) as opened:
        assert {"day", "aside"} < opened.load_table(name).refs().keys()
        place.upsert(name, rows_of([10]), deletes=False)
        assert sorted(map(tuple, place.table(name).read(head.id).collect())) == OLD
        refs.change_refs(place.table(name), {"day": None, "aside": None})
        assert not {"day", "aside"} & opened.load_table(name).refs().keys()


@pytest.mark.parametrize("place", catalogs(), indirect=True)
def test_outcomes_of_jobs_are_recorded_once(place: Place) -> None:
    """Record outcomes from a worker, where the provider commits by itself."""
    catalog = connection(place)
    assert history_of_jobs(catalog) == []
    report = JobReport("compact_data_files", now(), now(), "local-1", (TableReport("shop.t", "done"),))
    for number in (0, 1, 1):
        run = Run("d", "r", "t", 1)
        application = Application(f"application-{number}", run, report.job, ("shop.t",), report.started_at, report)
        with closing(catalog.load()) as opened:
            append_once(opened, Batch.of(application.id, AUDIT, application.rows()), 60)
    assert [row.row_id for row in history_of_jobs(catalog)] == ["application-1/0", "application-0/0"]


_ANSWERS = {"sqlite": ["append"], "postgres": list(KINDS), "rest": ["append", "insert"]}
_ANSWERS |= {"object_store": ["append", "expiry"], "object_store_in_s3": ["append"]}


@pytest.mark.parametrize(
    ("place", "kind"), catalogs({"glue": ["append"], "hive": ["append"], **_ANSWERS}), indirect=["place"]
)
def test_a_lost_answer_of_each_commit_is_recognized(place: Place, kind: str) -> None:
    survive(place, KINDS[kind], Fault("answer"))


@pytest.mark.parametrize(
    ("place", "kind"),
    catalogs(
        {"sqlite": ["append"], "postgres": ["merge-publish"], "rest": ["merge-statement"], "object_store": ["append"]}
    ),
    indirect=["place"],
)
def test_a_lost_request_of_each_commit_is_repeated(place: Place, kind: str) -> None:
    survive(place, KINDS[kind], Fault("request"))


@pytest.mark.services
@pytest.mark.soak
def test_nessie_is_refused(lake: Lake, tmp_path: Path) -> None:
    with S3Server(tmp_path / "buckets") as s3, Nessie(tmp_path, s3) as server:
        with pytest.raises(SpecError, match="'nessie' is Nessie"):
            use_catalog(lake.spark, Catalog("nessie", server.properties))
        # the reason: operations that jobs would miss
        lake.sql("CREATE NAMESPACE nessie.shop")
        lake.sql("CREATE TABLE nessie.shop.t USING iceberg AS SELECT 1L AS id")
        lake.sql("INSERT INTO nessie.shop.t VALUES (2)")
        lake.sql("ALTER TABLE nessie.shop.t CREATE TAG day")
        assert [row.parent_id for row in lake.sql("SELECT * FROM nessie.shop.t.snapshots").collect()] == [None]
        assert [row.name for row in lake.sql("SELECT * FROM nessie.shop.t.refs").collect()] == ["main"]
        connection = Connection(conn_id="nessie", conn_type="iceberg", extra=json.dumps(server.properties))
        with pytest.raises(SpecError, match="'nessie' is Nessie"):
            catalog_from_connection(connection).load()
