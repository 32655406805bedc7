"""Jobs feed and maintain tables in a folder without a catalog service; readers by path see the same tables."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

from airflow_provider_lakecdc.governance.precheck import precheck_tables
from lakecdc.contract.spec import parse_spec
from tests import lakes
from tests.conftest import Lake
from tests.e2e.objects import COLUMNS, TABLE, Objects
from tests.lakecdc.ingest.histories import History
from tests.lakecdc.moments.support import Remembered, iso
from tests.readers import duckdb_rows

ROOT = Path(__file__).resolve().parent.parent.parent
_CATALOG = "org.apache.iceberg.spark.SparkCatalog"


def rows(objects: Objects) -> list[tuple[Any, ...]]:
    """Return the rows that DuckDB reads by the path of the table."""
    return sorted(duckdb_rows(f"file://{objects.folder}/lake/shop/t", COLUMNS))


@pytest.fixture
def objects(lake: Lake, tmp_path: Path) -> Objects:
    return Objects(lake.new_name("objects").replace(".", "_"), tmp_path)


def assert_readers_by_path_agree(objects: Objects, lake: Lake, keys: list[int]) -> None:
    """Check that readers that know only the folder see the keys."""
    by_path = StaticTable.from_metadata(f"{objects.folder}/lake/shop/t").scan(selected_fields=("id",)).to_arrow()
    assert sorted(by_path["id"].to_pylist()) == keys
    for key, value in {"": _CATALOG, ".type": "hadoop", ".warehouse": f"file://{objects.folder}/lake"}.items():
        lake.spark.conf.set(f"spark.sql.catalog.by_path{key}", value)
    rows_by_path = lake.sql("SELECT id FROM by_path.shop.t ORDER BY id").collect()
    assert [row.id for row in rows_by_path] == keys


def test_jobs_feed_and_maintain_a_table(objects: Objects, lake: Lake) -> None:
    history = History(random.Random(9))
    for key in range(40):
        history.insert(key)
    for batch in range(2):
        for key in list(history.rows)[batch::5]:
            history.update(key, touch_doc=bool(key % 2))
        history.delete(batch)
        objects.feed(history, partition_by=["bucket(2, id)"])
        assert rows(objects) == history.expected()
    options: dict[str, dict[str, Any]] = {
        "rewrite_delete_files": {},
        "compact_data_files": {"min_input_files": 2},
        "expire_snapshots": {"max_age": 0.0, "retain_last": 1},
    }
    for job, given in options.items():
        metrics = objects.run(job, tables=[TABLE], options=given)
        assert rows(objects) == history.expected(), job
    assert "metadata_versions_trimmed" in metrics, "the last job trims metadata of an object store"
    looked = precheck_tables(
        objects.connection(),
        parse_spec(objects.spec("compact_data_files", tables=[TABLE], options=options["compact_data_files"])),
    )
    assert {table.table for table in looked.idle} == {TABLE}
    assert_readers_by_path_agree(objects, lake, [row[0] for row in history.expected()])
    metadata = objects.folder / "lake/shop/t/metadata"
    versions = sorted(int(path.name[1:].partition(".")[0]) for path in metadata.glob("v*.metadata.json"))
    assert versions == list(range(1, versions[-1] + 1)), "a version number was freed"
    assert (metadata / "version-hint.text").read_text() == str(versions[-1])


def test_a_moment_is_a_table_to_every_client(objects: Objects, lake: Lake) -> None:
    history = Remembered(random.Random(4))
    for _ in range(2):
        for _ in range(20):
            history.statement(6)
        objects.feed(history, history_table=f"{TABLE}_history")
    moment = history.moments()[-8]
    options = {"moment": iso(moment), "history_tables": {TABLE: f"{TABLE}_history"}}
    shown = objects.run("restore_moment", tables=[TABLE], options=options)["as_table"]
    namespace, _, name = shown.partition(".")
    assert history.at(moment) != history.at(history.moments()[-1])
    rows_at_moment = lake.sql(f"SELECT {COLUMNS} FROM {objects.name}.{namespace}.`{name}`").collect()
    assert sorted(map(tuple, rows_at_moment), key=str) == history.at(moment)
    with closing(objects.connection().load()) as worker:
        table = worker.load_table((namespace, name))
        snapshot = table.current_snapshot()
        assert snapshot is not None and snapshot.snapshot_id != worker.load_table(TABLE).metadata.current_snapshot_id
    with pytest.raises(Exception, match="NoSuchTable|no table"):
        lake.sql(f"DELETE FROM {objects.name}.{namespace}.`{name}` WHERE true")
    branch, refs = name.partition("@")[2], f"SELECT name FROM {objects.name}.{TABLE}.refs"
    dropped = objects.run("restore_moment", tables=[TABLE], options=options | {"action": "drop"})["refs_dropped"]
    assert dropped == [branch, f"{branch}-as-restored"]
    objects.run("restore_moment", tables=[TABLE], options=options)
    assert branch in [row.name for row in lake.sql(refs).collect()]
    lake.sql(f"DROP TABLE {objects.name}.{namespace}.`{name}`")
    lake.sql(f"REFRESH TABLE {objects.name}.{TABLE}")
    assert not [row.name for row in lake.sql(refs).collect() if row.name.startswith(branch)]
    (document,) = objects.folder.glob("lake/_lakecdc/catalog/moments/*.json")
    assert json.loads(document.read_text())["tables"] == {}


def test_changes_are_exported_and_rows_erased(objects: Objects) -> None:
    history, erased_key = History(random.Random(3)), 700_218_465_001
    for _ in range(2):
        for key in (1, 2, erased_key):
            history.update(key, touch_doc=True) if key in history.rows else history.insert(key)
        objects.feed(history)
    changes, keys = objects.folder / "changes", objects.folder / "keys.json"
    objects.run("export_changes", tables=[TABLE], options={"destinations": {TABLE: {"folder": str(changes)}}})
    (exported,) = changes.glob("*/*.parquet")
    assert pq.read_table(exported)["id"].to_pylist() == [1, 2, erased_key]
    keys.write_text(json.dumps({"id": erased_key}))
    erased = objects.run("erase_rows", tables=[TABLE], options={"keys_uri": str(keys)})
    assert erased["rows_erased"] and not erased["files_with_keys"]
    del history.rows[erased_key]
    assert rows(objects) == history.expected()
    left = objects.folder / "lake/shop/t"
    assert not any(erased_key in pq.read_table(file)["id"].to_pylist() for file in left.glob("data/**/*.parquet"))
    # the newest ends the erasure, the one before was proven
    newest, proven, *former = sorted(
        left.glob("metadata/v*.json"), key=lambda file: -int(file.name[1:].partition(".")[0])
    )
    assert len(former) == erased["metadata_deleted"] and all(file.stat().st_size < 200 for file in former)
    assert min(newest.stat().st_size, proven.stat().st_size) > 200


#: tests of jobs, workers and pages that also pass on an object store
_AGAIN = (
    *(f"lakecdc/{room}" for room in ("dimensions", "erase", "export", "maintain", "moments", "reconcile")),
    *(f"airflow_provider_lakecdc/{room}" for room in ("audit", "dag_runs", "governance", "lake", "operators")),
    *(f"airflow_provider_lakecdc/{room}" for room in ("page", "sensors", "triggers")),
    "e2e/test_audit.py",
    "e2e/test_moments.py",
)


@pytest.mark.soak
@pytest.mark.timeout(3 * 3600)
@pytest.mark.parametrize("tests", _AGAIN)
def test_tests_of_sqlite_pass_on_an_object_store(tests: str) -> None:
    chosen = ["-m", "not soak and not services and not sqlite", str(ROOT / "tests" / tests)]
    environment = {**os.environ, lakes.VARIABLE: "object_store"}
    ended = subprocess.run([sys.executable, "-m", "pytest", "-q", *chosen], cwd=ROOT, env=environment)
    assert ended.returncode == 0
