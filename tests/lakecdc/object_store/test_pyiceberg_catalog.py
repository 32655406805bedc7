"""pyiceberg's catalog in process and its REST client through the endpoint, both on a local folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable
from pyiceberg.table.update import AssertRefSnapshotId, SetPropertiesUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from lakecdc.contract.errors import LakecdcError, SpecError, UnsupportedError
from lakecdc.object_store import open_catalog as opened
from lakecdc.object_store.endpoint import Endpoint
from lakecdc.object_store.open_catalog import open_catalog
from lakecdc.object_store.proof import _proven
from lakecdc.object_store.pyiceberg_applier import PyicebergApplier
from lakecdc.object_store.pyiceberg_catalog import ObjectStoreCatalog
from lakecdc.object_store.storage import DeniedError, ReadOnly

IMPLEMENTATION = "lakecdc.object_store.pyiceberg_catalog.ObjectStoreCatalog"
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType()), identifier_field_ids=[1]
)
BY_NAME = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "by_name"))
ROWS = pa.table(
    {"id": [1, 2], "name": ["a", None]}, pa.schema([pa.field("id", pa.int64(), False), ("name", pa.string())])
)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tmp_path_factory.mktemp("lake").as_uri()


@pytest.fixture(scope="module", params=["in process", "through the endpoint"])
def lake(request: pytest.FixtureRequest, warehouse: str) -> Iterator[Catalog]:
    """Yield either client."""
    here = load_catalog("lake", **{"py-catalog-impl": IMPLEMENTATION, "warehouse": warehouse})
    assert isinstance(here, ObjectStoreCatalog)
    if request.param == "in process":
        yield here
        return
    catalog = open_catalog({"warehouse": warehouse}, PyicebergApplier())
    with (
        Endpoint(catalog, writable=True) as endpoint,
        RestCatalog("lake", uri=endpoint.uri, token=endpoint.token) as rest,
    ):
        yield rest


@pytest.fixture
def shop(lake: Catalog, request: pytest.FixtureRequest) -> str:
    name = f"{'rest' if isinstance(lake, RestCatalog) else 'here'}_{abs(hash(request.node.name))}"
    lake.create_namespace(name, {"owner": "ann"})
    return name


def test_tables_are_created_written_altered_and_read_by_path(lake: Catalog, shop: str) -> None:
    table = lake.create_table((shop, "orders"), SCHEMA, None, BY_NAME, properties={"format-version": "2", "a": "b"})
    table.append(ROWS)
    with table.transaction() as change:
        change.set_properties(c="d")
        change.update_schema().add_column("price", LongType()).commit()
    table.append(ROWS)
    loaded = lake.load_table(f"{shop}.orders")
    assert loaded == table and loaded.name() == (shop, "orders")
    assert loaded.metadata_location.endswith("/metadata/v4.metadata.json")
    assert {"a": "b", "c": "d"}.items() <= loaded.properties.items()
    assert loaded.schema().identifier_field_names() == {"id"} and loaded.spec().fields[0].name == "by_name"
    assert sorted(loaded.scan().to_arrow()["id"].to_pylist()) == [1, 1, 2, 2]
    by_path = StaticTable.from_metadata(loaded.location())
    assert by_path.metadata == loaded.metadata
    assert [entry.metadata_file[-16:] for entry in loaded.metadata.metadata_log] == [
        f"v{number}.metadata.json" for number in range(1, 4)
    ]


def test_a_table_is_created_with_its_rows_or_not_at_all(lake: Catalog, shop: str) -> None:
    with lake.create_table_transaction((shop, "orders"), SCHEMA) as creation:
        creation.append(ROWS)
        assert not lake.table_exists((shop, "orders"))
    assert lake.load_table((shop, "orders")).scan().to_arrow().num_rows == 2
    late = lake.create_table_transaction((shop, "items"), SCHEMA)
    lake.create_table((shop, "items"), SCHEMA)
    with pytest.raises(CommitFailedException):
        late.commit_transaction()
    with pytest.raises(TableAlreadyExistsError):
        lake.create_table_transaction((shop, "items"), SCHEMA)
    with pytest.raises(TableAlreadyExistsError):
        lake.create_table((shop, "items"), SCHEMA)
    assert lake.create_table_if_not_exists((shop, "items"), SCHEMA).name() == (shop, "items")
    for make in lake.create_table, lake.create_table_transaction:
        with pytest.raises(NoSuchNamespaceError):
            make("none.orders", SCHEMA)


def test_a_faster_writer_is_a_conflict(lake: Catalog, shop: str) -> None:
    table = lake.create_table((shop, "orders"), SCHEMA)
    table.append(ROWS)
    stale = lake.load_table((shop, "orders"))
    table.append(ROWS)
    snapshot = stale.current_snapshot()
    assert snapshot
    requirements = (AssertRefSnapshotId.model_validate({"ref": "main", "snapshot-id": snapshot.snapshot_id}),)
    with pytest.raises(CommitFailedException):
        lake.commit_table(stale, requirements, (SetPropertiesUpdate(updates={"lost": "true"}),))
    assert lake.load_table((shop, "orders")).metadata == table.metadata
    # pyiceberg itself retries with the new version
    stale.append(ROWS)
    assert lake.load_table((shop, "orders")).scan().to_arrow().num_rows == 6


def test_old_metadata_is_left_to_the_catalog(lake: Catalog, shop: str) -> None:
    deleting = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "1"}
    table = lake.create_table((shop, "orders"), SCHEMA, properties=deleting)
    for number in range(4):
        table.append(ROWS, {"number": str(number)})
    versions = list(Path(table.location().removeprefix("file://")).glob("metadata/v*.metadata.json"))
    if isinstance(lake, ObjectStoreCatalog):
        assert len(versions) == 5
    assert lake.load_table((shop, "orders")).metadata_location.endswith("/v5.metadata.json")


def test_tables_are_listed_renamed_and_dropped_by_name(lake: Catalog, shop: str) -> None:
    table = lake.create_table((shop, "orders"), SCHEMA)
    table.append(ROWS)
    other = f"{shop}_other"
    lake.create_namespace(other)
    renamed = lake.rename_table((shop, "orders"), (other, "items"))
    assert (renamed.name(), renamed.metadata) == ((other, "items"), table.metadata)
    assert lake.list_tables(other) == [(other, "items")] and lake.list_tables(shop) == []
    lake.create_table((shop, "orders"), SCHEMA)
    with pytest.raises(TableAlreadyExistsError):
        lake.rename_table((shop, "orders"), (other, "items"))
    lake.drop_table((other, "items"))
    for missing in (other, "items"), ("none", "orders"):
        assert not lake.table_exists(missing)
        for use in lake.load_table, lake.drop_table, lake.purge_table:
            with pytest.raises(NoSuchTableError):
                use(missing)


def test_purging_leaves_no_file_but_stubs(lake: Catalog, shop: str) -> None:
    table = lake.create_table((shop, "orders"), SCHEMA)
    table.append(ROWS)
    lake.purge_table((shop, "orders"))
    left = [path for path in Path(table.location().removeprefix("file://")).rglob("*") if path.is_file()]
    assert {path.name[0] for path in left} <= {"v"} and all(path.stat().st_size < 200 for path in left)
    assert not lake.table_exists((shop, "orders"))


def test_tables_can_be_registered(lake: Catalog, shop: str) -> None:
    table = lake.create_table((shop, "orders"), SCHEMA)
    table.append(ROWS)
    with pytest.raises(TableAlreadyExistsError):
        lake.register_table((shop, "orders"), table.metadata_location)
    # a second name for one table
    with pytest.raises(TableAlreadyExistsError):
        lake.register_table((shop, "copy"), table.metadata_location)
    lake.drop_table((shop, "orders"))
    registered = lake.register_table((shop, "copy"), table.metadata_location)
    assert registered.metadata == table.metadata and lake.list_tables(shop) == [(shop, "copy")]
    with pytest.raises(Exception, match="over an existing table") as refused:
        lake.register_table((shop, "orders"), table.metadata_location, overwrite=True)
    assert isinstance(lake, RestCatalog) or isinstance(refused.value, UnsupportedError)


def test_namespaces_are_created_changed_and_dropped(lake: Catalog, shop: str) -> None:
    below = (shop, "eu", "north")
    with pytest.raises(NamespaceAlreadyExistsError):
        lake.create_namespace(shop)
    lake.create_namespace_if_not_exists(shop)
    for levels in below[:2], below:
        lake.create_namespace(levels)
    assert (shop,) in lake.list_namespaces()
    assert lake.list_namespaces(shop) == [below[:2]] and lake.list_namespaces(below[:2]) == [below]
    summary = lake.update_namespace_properties(shop, {"owner", "none"}, {"team": "a"})
    assert (summary.removed, summary.updated, summary.missing) == (["owner"], ["team"], ["none"])
    assert lake.load_namespace_properties(shop) == {"team": "a"}
    lake.create_table((*below, "orders"), SCHEMA)
    for full in below, below[:2], shop:
        with pytest.raises(NamespaceNotEmptyError):
            lake.drop_namespace(full)
    lake.drop_table((*below, "orders"))
    lake.drop_namespace(below)
    assert not lake.namespace_exists(below) and lake.namespace_exists(below[:2])
    for use in lake.load_namespace_properties, lake.drop_namespace, lake.list_tables, lake.list_namespaces:
        with pytest.raises(NoSuchNamespaceError):
            use(below)


def test_views_are_not_supported(warehouse: str) -> None:
    here = ObjectStoreCatalog("lake", warehouse=warehouse)
    for use in here.list_views, here.load_view, here.view_exists, here.drop_view:
        with pytest.raises(NotImplementedError):
            use("shop.orders")
    assert not here.supports_server_side_planning()


def test_tables_are_listed_in_pages(warehouse: str) -> None:
    catalog = open_catalog({"warehouse": f"{warehouse}/pages", "readable_paths": "true"}, PyicebergApplier())
    names = [("shop", f"t{number:02}") for number in range(7)]
    with Endpoint(catalog, writable=True) as endpoint:
        properties = {"uri": endpoint.uri, "token": endpoint.token, "rest-page-size": "3"}
        rest = RestCatalog("lake", **properties)
        rest.create_namespace("shop")
        tables = [rest.create_table(name, SCHEMA) for name in names]
        assert rest.list_tables("shop") == names
    assert {table.location() for table in tables} == {f"{warehouse}/pages/shop/{name}" for _, name in names}


@pytest.mark.parametrize("properties", [{}, {"warehouse": ""}, {"warehouse": "file:///none", "readable_paths": "yes"}])
def test_invalid_properties_are_refused(properties: dict[str, str]) -> None:
    with pytest.raises(SpecError):
        ObjectStoreCatalog("lake", **properties)


def test_a_name_without_a_namespace_is_refused(warehouse: str) -> None:
    here = ObjectStoreCatalog("lake", warehouse=warehouse)
    for use in here.load_table, here.table_exists, here.drop_table:
        with pytest.raises(NoSuchTableError):
            use("orders")
    with pytest.raises((NoSuchNamespaceError, LakecdcError)):
        here.create_namespace("a..b")


def test_a_read_only_login_can_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = opened.open_storage(tmp_path.as_uri(), {})
    writer = ObjectStoreCatalog("lake", warehouse=tmp_path.as_uri())
    writer.create_namespace("shop")
    writer.create_table("shop.orders", SCHEMA).append(ROWS)
    (tmp_path / "_lakecdc/catalog/store.json").unlink()
    _proven.clear()
    monkeypatch.setattr(opened, "open_storage", lambda *_: ReadOnly(files, DeniedError("Access Denied")))
    reader = ObjectStoreCatalog("lake", warehouse=tmp_path.as_uri())
    assert reader.load_table("shop.orders").scan().to_arrow().num_rows == 2
    with pytest.raises(DeniedError, match="Access Denied"):
        reader.create_namespace("crm")
    assert not (tmp_path / "_lakecdc/catalog/store.json").exists()
