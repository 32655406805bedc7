"""A job's start snapshot outlives a concurrent expiry, and its tag does not outlive the job for long."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakecdc.contract.errors import ConflictError
from lakecdc.iceberg.refs import read_refs
from lakecdc.iceberg.table import IcebergTable, Snapshot
from lakecdc.maintain.start_tag import MAX_AGE_SECONDS, job_tags, start_tag
from tests.conftest import Lake

FAR_FUTURE = "TIMESTAMP '2099-01-01 00:00:00'"


@pytest.fixture
def table(lake: Lake) -> IcebergTable:
    name = lake.new_name("tag")
    lake.sql(f"CREATE TABLE lake.{name} (id bigint) USING iceberg")
    lake.pyiceberg().load_table(name).append(pa.table({"id": [1]}))
    lake.sql(f"REFRESH TABLE lake.{name}")
    return lake.table(name)


def head(table: IcebergTable) -> Snapshot:
    snapshot = table.refresh().head()
    assert snapshot is not None
    return snapshot


def expire_all_but_head(lake: Lake, table: IcebergTable) -> None:
    # Iceberg expires refs by their own age, not by older_than
    lake.sql(
        f"CALL lake.system.expire_snapshots(table => '{table.name}', older_than => {FAR_FUTURE}, retain_last => 1)"
    )
    table.refresh()


def test_the_tag_keeps_the_start_snapshot_and_is_removed_with_the_job(lake: Lake, table: IcebergTable) -> None:
    start = head(table)
    with start_tag(table, start, "rewrite_delete_files") as tag:
        assert tag.startswith("lakecdc-job-rewrite_delete_files-")
        lake.sql(f"INSERT OVERWRITE lake.{table.name} VALUES (2)")
        expire_all_but_head(lake, table)
        assert [row.id for row in table.read(start.id).collect()] == [1]
    assert not job_tags(read_refs(table))
    expire_all_but_head(lake, table)
    assert table.snapshot(start.id) is None


def test_the_age_of_the_tag_starts_with_the_job(lake: Lake, table: IcebergTable) -> None:
    start = head(table)
    lake.sql(f"INSERT INTO lake.{table.name} VALUES (2)")
    an_hour_old = Snapshot(**{**start.__dict__, "timestamp_ms": start.timestamp_ms - 3_600_000})
    with start_tag(table, an_hour_old, "sort_data_files"):
        (ref,) = job_tags(read_refs(table.refresh())).values()
        assert (ref.max_age_ms or 0) >= 3_600_000 + MAX_AGE_SECONDS * 1000


def test_a_failed_job_removes_its_tag(table: IcebergTable) -> None:
    with pytest.raises(RuntimeError, match="broke"), start_tag(table, head(table), "job"):
        raise RuntimeError("broke")
    assert not job_tags(read_refs(table.refresh()))


def test_the_next_job_removes_only_stale_tags(table: IcebergTable) -> None:
    start = head(table)
    manage = table.java.manageSnapshots()
    manage.createTag("lakecdc-job-dead", start.id).setMaxRefAgeMs("lakecdc-job-dead", 1).commit()
    table.java.manageSnapshots().createTag("of-a-user", start.id).setMaxRefAgeMs("of-a-user", 1).commit()
    with start_tag(table, start, "job") as running:
        assert set(job_tags(read_refs(table.refresh()))) == {running}
    assert set(dict(table.refresh().java.refs())) == {"main", "of-a-user"}


def test_a_missing_tag_is_not_an_error(table: IcebergTable) -> None:
    with start_tag(table, head(table), "job") as tag:
        table.java.manageSnapshots().removeTag(tag).commit()
    assert not job_tags(read_refs(table.refresh()))


def test_an_expired_start_snapshot_is_a_conflict(lake: Lake, table: IcebergTable) -> None:
    start = head(table)
    lake.sql(f"INSERT OVERWRITE lake.{table.name} VALUES (2)")
    expire_all_but_head(lake, table)
    with pytest.raises(ConflictError, match="has expired"), start_tag(table, start, "job"):
        pass
