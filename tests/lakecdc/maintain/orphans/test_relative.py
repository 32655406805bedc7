"""Relative locations in metadata, as format version 4 allows: no live file is treated as an orphan.

Iceberg 1.12 does not write them, so they are forged.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest

from lakecdc.contract.errors import UnsupportedError
from lakecdc.iceberg.commit import RowChanges
from lakecdc.iceberg.jvm import jvm
from lakecdc.iceberg.reachability import ManifestReader
from lakecdc.iceberg.staging import stage_rows
from lakecdc.maintain.delete_files.plan import resolved
from lakecdc.metadata.locations import relative, resolve
from tests.lakecdc.maintain.orphans.support import Attic, age, contents, plant


def append_by_relative_locations(attic: Attic, name: str) -> None:
    """Append rows whose data files the manifest names relative to the table."""
    table = attic.table(name)
    files = jvm(table.spark).org.apache.iceberg.DataFiles
    staged = [
        files.builder(table.java.spec()).copy(file).withPath(relative(str(file.location()), table.location)).build()
        for file in stage_rows(table, attic.rows(10, 20))
    ]
    attic.commit(name, RowChanges(staged))


def forge_metadata(attic: Attic, name: str) -> list[str]:
    """Make manifest lists, statistics and the log of the table's current metadata relative; return what was changed."""
    table = attic.table(name)
    path, root = str(table.java.operations().current().metadataFileLocation()), table.location
    document, changed = json.loads(_local(path).read_bytes()), list[str]()

    def forge(entries: list[dict[str, Any]], field: str) -> None:
        for entry in entries:
            entry[field] = relative(entry[field], root)
            changed.append(entry[field])

    forge(document["snapshots"], "manifest-list")
    forge(document["statistics"], "statistics-path")
    forge(document["metadata-log"], "metadata-file")
    _local(path).write_text(json.dumps(document))
    attic.sql(f"REFRESH TABLE {{}}.{name}")
    return changed


def _local(location: str) -> Path:
    return Path(urlsplit(location.replace("%", "%25").replace("?", "%3F")).path.replace("%25", "%"))


def test_files_with_relative_locations_stay(attic: Attic) -> None:
    name = attic.create(4)
    attic.append(name, 0, 10)
    attic.sql(f"CALL {{}}.system.compute_table_stats(table => '{name}')")
    append_by_relative_locations(attic, name)
    forged = forge_metadata(attic, name)
    assert {location.partition("/")[0] for location in forged} == {"metadata"}
    age(attic.path(name))
    before = set(contents(attic.path(name)))
    orphans = plant(attic.path(name), ["data/left.parquet", "metadata/left-m0.avro"])

    report = attic.run(name)
    assert (report.outcome, report.metrics["files_taken"]) == ("done", len(orphans)), report.reason
    after = set(contents(attic.path(name)))
    assert before <= after and not any(path.exists() for path in orphans)


def test_references_of_delete_files_are_resolved_before_they_are_compared(attic: Attic) -> None:
    """Otherwise a vector would be dropped as dangling, and its rows would return."""
    named = ["data/p=a:b/x", "/wh/t/x", "file:/wh/t/x", "s3a://lake/t/x", "a+b.c:x", "=a:b", "é:x"]
    frame = attic.lake.spark.createDataFrame([(name,) for name in named], "name string")
    for root in ("s3://lake/t", "s3://lake/t/"):
        locations = [row[0] for row in frame.select(resolved("name", root)).collect()]
        assert locations == [resolve(name, root) for name in named]


def test_a_manifest_with_a_relative_location_stops_the_search() -> None:
    """Iceberg 1.12 cannot open it, so its files are unknown."""
    java = SimpleNamespace(io=lambda: None)
    table: Any = SimpleNamespace(java=java, location="s3://lake/t", name="shop.t", spark=None)
    reader = object.__new__(ManifestReader)
    reader._table, reader._root = table, table.location
    manifest = SimpleNamespace(path=lambda: "metadata/a-m0.avro")
    with pytest.raises(UnsupportedError, match="shop.t: Its manifest metadata/a-m0.avro has a relative location"):
        reader._files(manifest, None)
