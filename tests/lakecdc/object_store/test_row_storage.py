"""A store without conditional writes that uses rows of a database instead."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lakecdc.contract.errors import SourceUnavailableError, SpecError
from lakecdc.object_store.catalog import ObjectCatalog
from lakecdc.object_store.local import LocalStorage
from lakecdc.object_store.open_catalog import open_catalog, open_storage
from lakecdc.object_store.proof import try_conditions
from lakecdc.object_store.row_storage import RowStorage
from lakecdc.object_store.rows import TABLE, Row, Rows, SqlRows, open_rows
from lakecdc.object_store.storage import Answer
from local_services.catalogs import ACCOUNT, Glue
from local_services.mariadb import MariaDB
from local_services.postgres import Postgres
from tests.lakecdc.object_store.memory import Counting, tokens
from tests.lakecdc.object_store.storages import check_storage
from tests.open_folder import open_folder


@pytest.fixture(
    params=[
        "sqlite",
        "postgres",
        *(pytest.param(name, marks=pytest.mark.services) for name in ("mariadb", "dynamodb")),
    ],
)
def rows(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rows]:
    if request.param == "sqlite":
        yield open_rows(f"sqlite:///{tmp_path}/rows.db", {})
    elif request.param == "postgres":
        with open_folder() as data, Postgres(data / "data") as server:
            yield open_rows(server.uri.replace("://", "+psycopg://"), {})
    elif request.param == "mariadb":
        with open_folder() as data, MariaDB(data / "data") as server:
            with server.connect() as session:
                session.query("CREATE DATABASE lake")
            yield open_rows(f"mysql+pymysql://root@127.0.0.1:{server.port}/lake", {})
    else:
        for name, value in ACCOUNT.items():
            monkeypatch.setenv(name, value)
        # moto also emulates DynamoDB
        with Glue(tmp_path) as server:
            yield open_rows("dynamodb://objects", {"dynamodb.endpoint": server.endpoint, "client.region": "us-east-1"})


class Unconditional(LocalStorage):
    """A store that ignores conditions."""

    def create(self, location: str, body: bytes) -> Answer:
        self.put(location, body)
        return Answer.WRITTEN

    def replace(self, location: str, body: bytes, tag: str) -> Answer:
        return self.create(location, body)


def test_rows_provide_the_conditions_that_a_store_lacks(rows: Rows, tmp_path: Path) -> None:
    warehouse = str(tmp_path / "lake")
    storage = RowStorage(Unconditional(warehouse), rows, warehouse)
    check_storage(storage, f"{warehouse}/shop")
    if isinstance(rows, SqlRows):
        # moto's check-and-set is not atomic
        try_conditions(storage, warehouse, rounds=1)
    assert storage.create(f"{warehouse}/shop/a", b"1") is Answer.WRITTEN
    bodies = list(Path(warehouse).glob("_lakecdc/catalog/bodies/*"))
    (bodies[0].parent / "of-a-writer-that-died").touch()
    assert storage.remove_bodies(datetime.now(UTC) - timedelta(hours=1)) == 0
    assert storage.remove_bodies(datetime.now(UTC) + timedelta(hours=1)) == 1
    assert list(bodies[0].parent.iterdir()) == bodies


def test_prefixes_are_searched_only_through_an_index(tmp_path: Path) -> None:
    rows = open_rows(f"sqlite:///{tmp_path}/rows.db", {})
    names = ["s3://b/lake/A", "s3://b/lake/a%", "s3://b/lake/a_", "s3://b/lake/a\u00ff", "s3://b/lakf", "s3://b/lake"]
    for name in names:
        assert rows.write(name, Row("tag", "body", 1, 0), None) is Answer.WRITTEN
    assert {name for name, _ in rows.list("s3://b/lake/a")} == {
        name for name in names if name.startswith("s3://b/lake/a")
    }
    assert {name for name, _ in rows.list("s3://b/lake/a\u00ff")} == {"s3://b/lake/a\u00ff"}
    with sqlite3.connect(tmp_path / "rows.db") as database:
        plan = database.execute(
            f"EXPLAIN QUERY PLAN SELECT * FROM {TABLE} WHERE location >= ? AND location < ?", (b"", b"")
        )
        assert "USING INDEX" in str(plan.fetchall())


def test_a_writer_that_paused_loses(tmp_path: Path) -> None:
    warehouse = str(tmp_path / "lake")
    rows = open_rows(f"sqlite:///{tmp_path}/rows.db", {})
    storage = RowStorage(Unconditional(warehouse), rows, warehouse)
    place = f"{warehouse}/shop/t/metadata/v2.metadata.json"
    paused = Row("tag", f"{warehouse}/body", 1, 0)
    assert storage.create(place, b"another's") is Answer.WRITTEN
    assert rows.write(place, paused, None) is Answer.REFUSED
    first = storage.read(place)
    assert first is not None and storage.replace(place, b"a third's", first.tag) is Answer.WRITTEN
    assert rows.write(place, paused, first.tag) is Answer.REFUSED
    last = storage.read(place)
    assert last is not None and last.body == b"a third's" == Path(place).read_bytes()
    assert len(list(Path(warehouse).glob("_lakecdc/catalog/bodies/*"))) == 1, "earlier bodies are deleted"


def test_all_commits_of_many_writers_land(tmp_path: Path) -> None:
    warehouse, service = str(tmp_path / "lake"), f"sqlite:///{tmp_path}/rows.db"

    def catalog() -> ObjectCatalog:
        storage = RowStorage(Unconditional(warehouse), open_rows(service, {}), warehouse)
        return ObjectCatalog(storage, warehouse, Counting(), readable_paths=True)

    catalog().create_namespace(("shop",), {})
    catalog().create_table(("shop",), {"name": "t"})

    def commit(number: int) -> None:
        catalog().update_table(("shop", "t"), [], [{"token": number}])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(commit, range(20)))
    newest = catalog().load(("shop", "t"))
    assert sorted(tokens(newest.text)) == list(range(20)) and newest.number == 21
    # readers by path see the copies
    folder = Path(warehouse) / "shop" / "t" / "metadata"
    assert (folder / "version-hint.text").read_text() == "21"
    assert (folder / "v21.metadata.json").read_text() == newest.text


def test_the_service_is_selected_by_the_connection(tmp_path: Path) -> None:
    warehouse = str(tmp_path / "lake")
    assert isinstance(open_storage(warehouse, {}), LocalStorage)
    chosen = open_storage(warehouse, {"commit_service": f"sqlite:///{tmp_path}/rows.db"})
    assert isinstance(chosen, RowStorage) and "sqlite" in str(chosen)
    for service, message in (("oracle", "of type 'oracle'"), ("mysql+nosuch", "cannot be opened")):
        with pytest.raises(SpecError, match=message) as refused:
            open_storage(warehouse, {"commit_service": f"{service}://user:secret@host/db"})
        assert "secret" not in str(refused.value)


def test_an_object_without_a_row_is_taken_over(tmp_path: Path) -> None:
    warehouse = str(tmp_path / "lake")
    storage = RowStorage(LocalStorage(warehouse), open_rows(f"sqlite:///{tmp_path}/rows.db", {}), warehouse)
    place = f"{warehouse}/shop/t/metadata/version-hint.text"
    LocalStorage(warehouse).put(place, b"3")
    assert storage.create(place, b"1") is Answer.REFUSED
    stored = storage.read(place)
    assert stored is not None and storage.replace(place, b"4", stored.tag) is Answer.WRITTEN
    assert storage.replace(place, b"5", stored.tag) is Answer.REFUSED
    assert Path(place).read_bytes() == b"4"


def test_read_only_access_creates_no_table(tmp_path: Path) -> None:
    properties = {"warehouse": tmp_path.as_uri(), "commit_service": f"sqlite:///{tmp_path}/rows.db"}
    reader = open_catalog(properties, Counting(), writable=False)
    with pytest.raises(SourceUnavailableError, match="commit_service"):
        reader.exists(("shop", "t"))
    with sqlite3.connect(tmp_path / "rows.db") as database:
        assert not database.execute("SELECT * FROM sqlite_master").fetchall()
    open_catalog(properties, Counting()).create_namespace(("shop",), {})
    assert reader.namespaces() == [("shop",)]
