"""Workers see the same facts of tables written by Spark through pyiceberg as jobs see through Iceberg.

Health, the facts that jobs decide by, and prechecks.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from airflow_provider_lakecdc.governance.precheck import precheck_tables
from airflow_provider_lakecdc.lake.assess_table import health_of
from airflow_provider_lakecdc.lake.live_files import live_files
from lakecdc.contract.spec import parse_spec
from lakecdc.iceberg.sort_order import column_order
from lakecdc.maintain import measure
from lakecdc.maintain.compact import compact_data_files
from lakecdc.maintain.delete_files.job import rewrite_delete_files
from lakecdc.maintain.expire import expire_snapshots
from lakecdc.maintain.sort import sort_data_files
from lakecdc.metadata.file_facts import FileFacts, Partitions, by_partition
from lakecdc.runtime.run import TableWork
from tests.conftest import Lake
from tests.lakecdc.maintain.support import append, append_parts, count, create, delete_by_key, run
from tests.versions import V2, V3


@V3
def test_deletes_of_each_kind_are_counted(lake: Lake, version: int) -> None:
    name = create(lake, version, partitioned_by="d")
    append_parts(lake, name, 0, 300, 3)
    delete_by_key(lake, name, range(0, 100, 2), text="new")
    before = health_of(lake.pyiceberg().load_table(name))
    # one delete file of partition 0, for its three older data files
    assert before is not None and (before.data_files, before.equality_deletes, before.delete_file_reads) == (7, 50, 3)
    assert run(lake, rewrite_delete_files, name).outcome == "done"
    after = health_of(lake.pyiceberg().load_table(name))
    assert after is not None and after.equality_delete_files == 0
    kinds = {2: (1, 0), 3: (0, 1)}[version]
    assert (after.position_delete_files, after.deletion_vectors) == kinds
    assert sum(kinds) == count(lake, name, 1) == after.delete_file_reads
    assert after.position_deletes == 50
    assert after.lost["deletes"] < before.lost["deletes"]


@V2
def test_workers_and_jobs_see_the_same_file_facts(lake: Lake, version: int) -> None:
    name = create(lake, version, partitioned_by="d")
    append_parts(lake, name, 0, 300, 3)
    delete_by_key(lake, name, range(0, 100, 2), text="new")
    assert run(lake, rewrite_delete_files, name).outcome == "done"
    delete_by_key(lake, name, range(100, 120), text="newer")
    table = lake.pyiceberg().load_table(name)
    columns = [table.schema().find_field(column).field_id for column in ("d", "id", "v")]
    worker = by_partition(live_files(table, table.current_snapshot().manifests(table.io), columns))
    jobs = lake.table(name)
    head = jobs.head()
    assert head is not None
    facts = nameless(worker)
    assert facts == nameless(measure.measure(jobs, head.id, column_order(jobs, ["d", "id", "v"])))
    assert all(f.bounded for f in facts)
    assert sum(f.deleted for f in facts) == 50 and any(f.equality_deletes for f in facts)


def nameless(partitions: Partitions) -> list[FileFacts]:
    """Return facts without partition texts, which jobs and workers format differently."""
    return sorted((replace(f, partition="") for files in partitions.values() for f in files), key=lambda f: f.location)


@V2
def test_prechecks_agree_with_jobs(lake: Lake, version: int) -> None:
    name = create(lake, version)
    append_parts(lake, name, 0, 600, 6)
    delete_by_key(lake, name, range(0, 10), text="new")
    # compaction would also remove the deletes, and sorting the files
    assert_done_once(lake, name, rewrite_delete_files)
    assert_done_once(lake, name, compact_data_files)
    append(lake, name, 0, 600)
    assert run(lake, sort_data_files, name, columns=["id"]).outcome == "done"
    # the table records its last sort order
    append(lake, name, 0, 600)
    assert_done_once(lake, name, sort_data_files)
    assert_done_once(lake, name, expire_snapshots, older_than="2099-01-01T00:00:00Z", retain_last=1)


def assert_done_once(lake: Lake, name: str, work: TableWork, **options: Any) -> None:
    """Check that the precheck leaves a table to its job exactly as long as there is work."""
    job = getattr(work, "__name__")  # noqa: B009
    spec = parse_spec(lake.spec(job, name, options=options))
    for outcome in ("done", "nothing"):
        precheck = precheck_tables(SimpleNamespace(load=lake.pyiceberg), spec)  # type: ignore[arg-type]
        idle = {report.table: report.reason for report in precheck.idle}
        assert (name in precheck.left, name in idle) == (outcome == "done", outcome == "nothing")
        report = run(lake, work, name, **options)
        assert report.outcome == outcome
        assert idle.get(name) == (report.reason if outcome == "nothing" else None)
