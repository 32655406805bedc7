"""Jobs on a table in a folder without catalog service, which DuckDB reads by its path after each job."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError

from lakecdc.contract.errors import SourceUnavailableError
from lakecdc.contract.spec import Catalog, parse_spec
from lakecdc.iceberg.table import IcebergTable
from lakecdc.maintain.expire import expire_snapshots
from lakecdc.maintain.orphans.job import RemoveOrphanFiles
from lakecdc.object_store.versions import Versions
from lakecdc.runtime.session import use_catalog
from tests.conftest import Lake
from tests.readers import Rows, duckdb_rows

NAME = "test.orders"
DAY = 24 * 3600


def test_readers_by_path_follow_expiry_and_orphan_removal(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = {"type": "object_store", "warehouse": f"file://{tmp_path}", "readable_paths": "true"}
    use_catalog(lake.spark, Catalog("folder", properties))
    lake.sql("CREATE NAMESPACE folder.test")
    lake.sql(
        f"CREATE TABLE folder.{NAME} (id bigint) USING iceberg TBLPROPERTIES ("
        "'write.metadata.previous-versions-max'='1', 'write.metadata.delete-after-commit.enabled'='true')"
    )
    for number in range(3):
        lake.sql(f"INSERT OVERWRITE folder.{NAME} SELECT {number}L")
    table, metadata = IcebergTable(lake.spark, "folder", NAME), tmp_path / "test" / "orders" / "metadata"
    names = {path.name for path in metadata.glob("v*.metadata.json")}

    def run(job: str, **options: object) -> dict[str, object]:
        catalog = {"name": "folder", "properties": properties}
        spec = parse_spec({"version": 1, "job": job, "catalog": catalog, "tables": [NAME], "options": options})
        work = expire_snapshots if job == "expire_snapshots" else RemoveOrphanFiles(lambda: time.time() + 9 * DAY)
        return dict(work(table, spec).metrics)

    def rows() -> Rows:
        return duckdb_rows(str(metadata.parent))

    on_disk = {*metadata.iterdir()}
    with monkeypatch.context() as patch:
        patch.setattr(Versions, "move_hint", lambda *_, **__: False)
        with pytest.raises(Py4JJavaError, match="delete no files"):
            lake.sql(f"CALL folder.system.expire_snapshots('{NAME}', TIMESTAMP '2100-01-01', 1)").collect()
        assert table.refresh().metadata("snapshots").count() == 1 and on_disk <= {*metadata.iterdir()}
        lake.sql(f"INSERT OVERWRITE folder.{NAME} SELECT 2L")
        with pytest.raises(SourceUnavailableError, match="No file was deleted"):
            run("expire_snapshots", max_age=0, retain_last=1)
        assert rows() == [(2,)] and on_disk <= {*metadata.iterdir()}
    for path in metadata.glob("v*"):
        os.utime(path, (time.time() - 7200,) * 2)
    done = run("remove_orphan_files", dry_run=False)
    assert done["metadata_versions_trimmed"] and done["catalog_files_removed"] == 0 and done["files_taken"]
    assert rows() == [(2,)]
    lake.sql(f"INSERT OVERWRITE folder.{NAME} SELECT 3L")
    assert run("expire_snapshots", max_age=0, retain_last=1)["deleted_manifest_lists"] == 1
    assert rows() == [(3,)]
    assert names < {path.name for path in metadata.glob("v*.metadata.json")}
    lake.sql(f"DROP TABLE folder.{NAME} PURGE")
    # version numbers are not reused
    left = [path for path in metadata.parent.rglob("*") if path.is_file()]
    assert names < {path.name for path in left} and max(path.stat().st_size for path in left) < 200
