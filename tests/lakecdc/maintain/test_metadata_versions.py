"""Old metadata versions keep their names: jobs empty but never delete them, and never overtake the hint."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lakecdc.contract.errors import InputError, SourceUnavailableError, UnsupportedError
from lakecdc.erase.proof import _stored, delete_former
from lakecdc.iceberg.stored_files import StoredFile
from lakecdc.maintain.metadata_versions import require_hint, trim, versions_of
from lakecdc.maintain.orphans import guards
from lakecdc.maintain.orphans.guards import keep_or_refuse, refuse_unsupported
from lakecdc.maintain.orphans.search import is_hidden, is_table_metadata
from lakecdc.object_store import versions
from lakecdc.object_store.catalog import ObjectCatalog
from lakecdc.object_store.local import LocalStorage
from lakecdc.object_store.open_catalog import serve
from lakecdc.object_store.storage import Answer
from lakecdc.object_store.versions import Versions

DELETION = "write.metadata.delete-after-commit.enabled"
NAME = ("shop", "orders")


class Applier:
    """Metadata with properties, as large as Iceberg's."""

    def create(self, request: Mapping[str, Any], location: str) -> str:
        properties = {**request.get("properties", {}), "padding": "-" * 200}
        return json.dumps({"table-uuid": "u", "location": location, "properties": properties})

    def apply(self, text: str, metadata_location: str, requirements: object, updates: Sequence[Any]) -> str:
        document = json.loads(text)
        del document["lakecdc-commit-id"]
        for each in updates:
            document["properties"] |= each.get("updates", {})
        return json.dumps(document)


class BrokenHint(LocalStorage):
    """A storage whose hint can no longer be updated."""

    broken = False

    def replace(self, location: str, body: bytes, tag: str) -> Answer:
        is_hint = location.endswith("version-hint.text")
        return Answer.REFUSED if self.broken and is_hint else super().replace(location, body, tag)


class Shop:
    """A catalog in a folder, served to a session, with a table of seven versions."""

    def __init__(self, folder: Path) -> None:
        self.storage = BrokenHint(str(folder))
        self.catalog = ObjectCatalog(self.storage, str(folder), Applier(), readable_paths=True)
        self.catalog.create_namespace(("shop",), {})
        properties = {DELETION: "true", "write.metadata.previous-versions-max": "2"}
        self.catalog.create_table(("shop",), {"name": "orders", "properties": properties})
        for number in range(6):
            self.commit({"n": str(number), DELETION: "true"})
        self.folder = folder / "shop" / "orders" / "metadata"
        facts: dict[str, Any] = {"catalog": "lake", "name": "shop.orders", "location": str(self.folder.parent)}
        facts |= {"properties": properties, "format_version": 2, "is_encrypted": False}
        self.table: Any = SimpleNamespace(**facts)

    def commit(self, properties: Mapping[str, str]) -> None:
        self.catalog.update_table(NAME, [], [{"action": "set-properties", "updates": properties}])

    @property
    def versions(self) -> Versions:
        versions = versions_of(self.table)
        assert versions is not None
        return versions

    def whole(self) -> list[int]:
        """Return the numbers of versions with content."""
        files = {int(path.name[1:].partition(".")[0]): path for path in self.folder.glob("v*.metadata.json")}
        assert sorted(files) == [*range(1, len(files) + 1)], "no number is missing"
        return sorted(number for number, path in files.items() if "properties" in path.read_text())

    def age(self, seconds: float) -> None:
        for path in self.folder.glob("v*"):
            os.utime(path, (time.time() - seconds,) * 2)

    def files(self) -> list[StoredFile]:
        listed = [(path, path.stat()) for path in sorted(self.folder.iterdir())]
        return [StoredFile(f"file:{path}", s.st_size, int(s.st_mtime * 1000)) for path, s in listed]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    opened = Shop(tmp_path)
    serve("lake", opened.catalog)
    yield opened
    serve("lake", None)


def test_versions_that_readers_no_longer_need_are_emptied(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    assert trim(shop.table) == {"metadata_versions_trimmed": 0}
    shop.age(2 * 3600)
    # the newest version and the two in its log
    assert trim(shop.table) == {"metadata_versions_trimmed": 4} and shop.whole() == [5, 6, 7]
    assert trim(shop.table) == {"metadata_versions_trimmed": 0}
    monkeypatch.setattr(versions, "KEPT_NUMBERS", 0)
    shop.age(31 * 24 * 3600)
    assert trim(shop.table) == {"metadata_versions_trimmed": 4}
    assert sorted(path.name for path in shop.folder.glob("v?.*")) == [f"v{n}.metadata.json" for n in (5, 6, 7)]


def test_an_erasure_empties_older_versions_immediately(shop: Shop) -> None:
    assert delete_former(shop.table) == 6 and shop.whole() == [7]
    assert [*shop.versions.contents()] == []
    assert delete_former(shop.table) == 0


def test_no_file_is_deleted_while_readers_by_path_see_an_older_version(shop: Shop) -> None:
    require_hint(shop.table)
    shop.storage.broken = True
    shop.commit({"n": "8"})
    with pytest.raises(SourceUnavailableError, match="version-hint.text.*No file was deleted"):
        require_hint(shop.table)
    shop.storage.broken = False
    require_hint(shop.table)
    assert (shop.folder / "version-hint.text").read_text() == "8"


def test_tables_of_other_catalogs_have_no_versions(shop: Shop) -> None:
    other: Any = SimpleNamespace(**{**vars(shop.table), "catalog": "another"})
    require_hint(other)
    assert versions_of(other) is None and trim(other) == {}


@pytest.mark.parametrize("catalog", ["lake", "another"])
def test_versions_are_not_attributed_to_another_catalog(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, catalog: str
) -> None:
    shop.age(2 * 3600)
    trim(shop.table)
    known: tuple[int, ...]
    if catalog == "lake":
        # a log with one version, older than the other versions
        known = (7,)
    else:
        # the table was moved to another catalog, and its log has the versions with content
        shop.table.catalog, known = "another", (5, 6, 7)
    log = [{"metadata-file": f"file://{shop.folder}/v{n}.metadata.json", "timestamp-ms": 0} for n in known]
    read: list[str] = []
    monkeypatch.setattr(guards, "_uuid", lambda _, location: read.append(location))
    versions = [each for each in shop.files() if is_table_metadata(each.location)]
    assert len(versions) == 8
    reachable: Any = SimpleNamespace(protect=read.append)
    assert keep_or_refuse(shop.table, {"metadata-log": log, "table-uuid": "u"}, versions, reachable) == 0
    assert read == []


def test_files_of_the_catalog_and_its_writers_are_not_orphans(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    left = list[str]()
    monkeypatch.setattr(os, "link", lambda source, target: left.append(os.path.basename(source)))
    shop.storage.create(str(shop.folder / "v8.metadata.json"), b"{}")
    assert len(left) == 1 and is_hidden(f"metadata/{left[0]}", ())
    assert is_hidden("_lakecdc/catalog/names/table/shop/orders.json", {"_lakecdc"})
    shop.table.properties = {}
    with pytest.raises(UnsupportedError, match="documents"):
        refuse_unsupported(shop.table, ["s3a://bucket/lake/_lakecdc/catalog/x"])


def test_tables_in_the_catalogs_own_namespace_are_refused(shop: Shop) -> None:
    shop.catalog.create_namespace(("_lakecdc",), {})
    with pytest.raises(InputError, match="the catalog's documents"):
        shop.catalog.create_table(("_lakecdc",), {"name": "catalog"})


def test_clients_do_not_see_the_deletion_property(shop: Shop) -> None:
    assert DELETION not in shop.catalog.load(NAME).text
    assert json.loads(shop.catalog.load(NAME).text)["properties"]["n"] == "5"


def test_the_proof_of_an_erasure_reads_versions_wherever_they_are(shop: Shop, tmp_path: Path) -> None:
    shop.age(2 * 3600)
    trim(shop.table)
    newest = {"metadata-log": [{"metadata-file": f"file:{shop.folder}/v7.metadata.json"}]}
    here = shop.table.location
    storage: Any = SimpleNamespace(walk=lambda folder: shop.files() if folder == here else [])
    stored = {Path(each).name for each in _stored(shop.table, storage, newest)}
    assert stored == {"v5.metadata.json", "v6.metadata.json", "v7.metadata.json", "version-hint.text"}
    # the catalog keeps the versions at their old location
    shop.table.location = str(tmp_path / "elsewhere")
    stored = {Path(each).name for each in _stored(shop.table, storage, newest)}
    assert stored == {"v5.metadata.json", "v6.metadata.json", "v7.metadata.json"}
