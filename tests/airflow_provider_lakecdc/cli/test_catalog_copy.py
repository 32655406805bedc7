"""The command ``catalog copy`` between a catalog in a database and one in a folder, both ways."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.table import Table

from airflow_provider_lakecdc.cli.definition import get_lakecdc_commands
from airflow_provider_lakecdc.hooks.catalog import get_catalog
from airflow_provider_lakecdc.lake.table_copy import TableCopier
from lakecdc.object_store.pyiceberg_catalog import ObjectStoreCatalog
from tests.airflow_provider_lakecdc.cli.conftest import Lakecdc
from tests.airflow_provider_lakecdc.conftest import connection
from tests.airflow_provider_lakecdc.tables import ROW

COPY = ("catalog", "copy", "--from")


@pytest.fixture
def catalogs(lake: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Catalog]:
    """Return an empty catalog ``lake`` in SQLite and an empty catalog ``bare`` in a folder."""
    extra = {"type": "object_store", "warehouse": (tmp_path / "bare").as_uri()}
    connection(monkeypatch, "bare", conn_type="iceberg", extra=extra)
    return {name: get_catalog(name).load() for name in ("lake", "bare")}


def _create_table(catalog: Catalog, name: str, **properties: str) -> Table:
    catalog.create_namespace_if_not_exists(name.rpartition(".")[0], {"owner": "shop-team"})
    table = catalog.create_table(name, ROW.schema, properties=properties)
    table.append(ROW)
    return table


def _files(tmp_path: Path) -> set[Path]:
    return {path for path in tmp_path.rglob("*") if path.is_file() and path.suffix in (".parquet", ".json")}


@pytest.mark.parametrize(("old", "new"), [("lake", "bare"), ("bare", "lake")])
def test_the_other_catalog_has_the_tables_and_commits_to_them(
    catalogs: Mapping[str, Catalog], lakecdc: Lakecdc, old: str, new: str
) -> None:
    before, after = catalogs[old], catalogs[new]
    tables = [
        _create_table(before, name, note="kept") for name in ("shop.orders", "shop.orders__changes", "crm.people")
    ]
    if old == "bare":
        _create_table(before, "shop.eu.orders")
    dry = lakecdc(*COPY, old, "--to", new, "shop", "--dry-run")
    assert dry.code == 0 and "shop.orders copy " in " ".join(dry.out.split()) and not after.list_namespaces()

    ended = lakecdc(*COPY, old, "--to", new, "shop", "--json")
    expected = {"shop.orders", "shop.orders__changes"} | ({"shop.eu.orders"} if old == "bare" else set())
    assert ended.code == 0 and {name: each["outcome"] for name, each in ended.document.items()} == dict.fromkeys(
        expected, "copied"
    )
    assert after.list_namespaces() == [("shop",)] and not after.table_exists("crm.people")
    assert after.load_namespace_properties("shop")["owner"] == "shop-team"
    copy = after.load_table("shop.orders")
    assert copy.metadata == tables[0].metadata and copy.scan().to_arrow().num_rows == 1

    copy.append(ROW)
    assert after.load_table("shop.orders").scan().to_arrow().num_rows == 2
    # the table stays in the first catalog, and dropping it there leaves the copy intact
    assert before.load_table("shop.orders").scan().to_arrow().num_rows == 1
    before.drop_table("shop.orders")
    assert after.load_table("shop.orders").scan().to_arrow().num_rows == 2
    # and it can be copied back
    assert lakecdc(*COPY, new, "--to", old, "shop.orders").code == 0
    back = before.load_table("shop.orders")
    back.append(ROW)
    assert before.load_table("shop.orders").scan().to_arrow().num_rows == 3


def test_a_second_copy_recognizes_the_first_one_unless_one_was_written(
    catalogs: Mapping[str, Catalog], lakecdc: Lakecdc, tmp_path: Path
) -> None:
    # without properties, as a database marks them
    catalogs["lake"].create_namespace("shop")
    # a catalog in an object store does not let clients delete its metadata
    _create_table(catalogs["lake"], "shop.orders", **{"write.metadata.delete-after-commit.enabled": "true"})
    _create_table(catalogs["lake"], "shop.items")
    assert lakecdc(*COPY, "lake", "--to", "bare").code == 0
    assert catalogs["bare"].load_namespace_properties("shop") == {}
    files = _files(tmp_path)
    again = lakecdc(*COPY, "lake", "--to", "bare")
    assert again.code == 0 and [line.split()[1] for line in again.out.splitlines()[2:]] == ["there", "there"]
    assert _files(tmp_path) == files

    catalogs["lake"].load_table("shop.orders").append(ROW)
    files = _files(tmp_path)
    behind = lakecdc(*COPY, "lake", "--to", "bare")
    assert behind.code == 1 and _files(tmp_path) == files
    assert "shop.orders cannot be copied: InputError: The other catalog has this table with other" in behind.out
    assert catalogs["bare"].load_table("shop.orders").scan().to_arrow().num_rows == 1


def test_another_table_of_the_same_name_is_not_overwritten_and_the_others_are_copied(
    catalogs: Mapping[str, Catalog], lakecdc: Lakecdc
) -> None:
    _create_table(catalogs["lake"], "shop.items")
    _create_table(catalogs["lake"], "shop.orders")
    other = _create_table(catalogs["bare"], "shop.orders")
    ended = lakecdc(*COPY, "lake", "--to", "bare", "--json")
    assert ended.code == 1 and "another table of this name" in ended.document["shop.orders"]["error"]
    assert ended.document["shop.items"]["outcome"] == "copied"
    assert catalogs["bare"].load_table("shop.orders").metadata == other.metadata


def test_a_concurrently_written_table_is_reported(
    catalogs: Mapping[str, Catalog], lakecdc: Lakecdc, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, register = _create_table(catalogs["lake"], "shop.orders"), ObjectStoreCatalog.register_table

    def late(catalog: ObjectStoreCatalog, identifier: tuple[str, ...], location: str) -> Table:
        table.append(ROW)
        return register(catalog, identifier, location)

    monkeypatch.setattr(ObjectStoreCatalog, "register_table", late)
    ended = lakecdc(*COPY, "lake", "--to", "bare")
    assert ended.code == 1 and "so that the copy is behind" in ended.out


class OtherStore(PyArrowFileIO):
    """A store with other contents at each location, like another server's bucket of the same name."""

    there: ClassVar[str] = ""

    def new_input(self, location: str) -> PyArrowFile:
        return super().new_input(self.there)


def test_other_storage_is_refused_before_anything_is_written(
    catalogs: Mapping[str, Catalog], lakecdc: Lakecdc, monkeypatch: pytest.MonkeyPatch, lake: dict[str, str]
) -> None:
    here = catalogs["bare"]
    orders = _create_table(here, "shop.orders")
    older = orders.metadata.metadata_log[-1].metadata_file
    empty, other = (here.create_table(name, ROW.schema) for name in ("shop.empty", "shop.other"))
    connection(monkeypatch, "other", conn_type="iceberg", extra={**lake, "py-io-impl": f"{__name__}.OtherStore"})
    for name, there, said in (
        ("shop.orders", "file:///nowhere/v1.metadata.json", "FileNotFoundError"),
        ("shop.orders", older, "finds another table"),
        ("shop.empty", other.metadata_location, "finds another table"),
    ):
        monkeypatch.setattr(OtherStore, "there", there)
        ended = lakecdc(*COPY, "bare", "--to", "other", name)
        assert ended.code == 1 and "The other catalog cannot read" in ended.out and said in ended.out
    assert not catalogs["lake"].list_namespaces()
    monkeypatch.setattr(OtherStore, "there", empty.metadata_location)
    assert lakecdc(*COPY, "bare", "--to", "other", "shop.empty", "--dry-run").code == 0


def test_a_warehouse_in_another_kind_of_storage_is_refused(catalogs: Mapping[str, Catalog]) -> None:
    _create_table(catalogs["lake"], "shop.orders")
    catalogs["bare"].properties["warehouse"] = "s3://bucket/lake"
    copier = TableCopier(catalogs["lake"], catalogs["bare"])
    planned = copier.plan(["shop.orders"])
    assert "another kind of storage" in planned["shop.orders"]["error"] and copier.write() == {}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("lake", "--to", "lake"), "--from and --to are one connection"),
        (("bare", "--to", "second"), "Catalogs 'bare' and 'second' are both of type object_store"),
        (("lake", "--to", "nowhere"), "Connection 'nowhere'"),
        (("lake", "--to", "bare", "shop.orders", "shop.absent"), "No table or namespace with tables is called shop.ab"),
        (("lake", "--to", "bare", "crm.*"), "No table matches crm.*"),
    ],
)
def test_bad_input_is_reported_in_one_line(
    catalogs: Mapping[str, Catalog],
    lakecdc: Lakecdc,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    said: str,
) -> None:
    connection(monkeypatch, "second", conn_type="iceberg", extra={"type": "object_store", "warehouse": "/second"})
    _create_table(catalogs["lake"], "shop.orders")
    ended = lakecdc(*COPY, *arguments)
    assert (ended.code, ended.out) == (4, "") and ended.err.startswith(f"Error: {said}")
    assert not catalogs["bare"].list_namespaces()


def test_airflow_has_the_command() -> None:
    from argparse import ArgumentParser

    from airflow.cli.cli_parser import _add_command

    parser = ArgumentParser()
    (group,) = get_lakecdc_commands()
    _add_command(parser.add_subparsers(), group)
    parsed = parser.parse_args(["lakecdc", *COPY, "lake", "--to", "bare", "shop", "!shop.tmp_*", "--dry-run"])
    assert (parsed.source, parsed.target, parsed.tables) == ("lake", "bare", ["shop", "!shop.tmp_*"]) and parsed.dry_run
