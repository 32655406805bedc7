"""Side tables are maintained like other tables, and delete debt equals pyiceberg's count."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_lakecdc.lake.delete_debt import _count, debt_of
from airflow_provider_lakecdc.lake.tables import branch_snapshots
from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import JobSpec, parse_spec
from lakecdc.iceberg import definition
from lakecdc.iceberg.table import IcebergTable, exists
from lakecdc.ingest import erased as hashes
from lakecdc.ingest import quarantine, tombstones
from lakecdc.ingest.sources import file_memory
from lakecdc.ingest.sources.log.parking import Parking
from lakecdc.maintain.compact import compact_data_files
from lakecdc.maintain.delete_files.job import rewrite_delete_files
from lakecdc.maintain.expire import expire_snapshots
from lakecdc.maintain.manifests import rewrite_manifests
from lakecdc.metadata.debt import DeleteDebt
from lakecdc.metadata.names import quarantine_of, side_tables
from lakecdc.metadata.policy import ALLOW, MIN_ROW_AGE, MIN_SNAPSHOT_AGE
from lakecdc.metadata.positions import Position
from lakecdc.runtime.run import TableWork, each_table, run
from tests.conftest import Lake
from tests.lakecdc.maintain.support import count, create, delete_by_key, fill
from tests.lakecdc.maintain.support import run as run_one
from tests.versions import V3

BATCHES = 2


def filled_side_tables(lake: Lake, target: str) -> list[str]:
    """Create the side tables of a target as ingestion does, with one file per batch."""
    deletes, erased, files, quarantined, parked = side_tables(target)
    tombstones._open_or_create(lake.table(target), ["id"])
    hashes._create(lake.table(target))
    definition.create_side_table(lake.spark, "lake", files, file_memory._COLUMNS)
    quarantine.create_quarantine(lake.spark, "lake", quarantined)
    if not exists(lake.spark, "lake", parked):
        Parking(lake.spark, "lake")._create(parked)
    for batch in range(BATCHES):
        lake.sql(f"INSERT INTO lake.{deletes} VALUES ({batch}, 'order', now())")
        lake.sql(f"INSERT INTO lake.{erased} VALUES ('hash {batch}', 'order', '')")
        lake.sql(f"INSERT INTO lake.{files} VALUES ('c{batch}', '', 'f', null)")
        message = f"'{target}', 'p{batch}', 'type', 'no', now(), null, null, null, 't', 0, {batch}, X'00', X'FF'"
        lake.sql(f"INSERT INTO lake.{quarantined} VALUES ({message}, null, null, null)")
        lake.sql(f"INSERT INTO lake.{parked} (target, through, kind) VALUES ('{target}', {batch}, 'end')")
    return [deletes, erased, files, quarantined, parked]


def test_side_tables_are_compacted_rewritten_and_expired_with_their_target(lake: Lake) -> None:
    target = create(lake, 2)
    fill(lake, target, files=1)
    beside = filled_side_tables(lake, target)
    counted = [lake.duckdb_rows(name, "count(*)") for name in beside]

    def job(work: TableWork, **options: Any) -> dict[str, str]:
        name = getattr(work, "__name__")  # noqa: B009
        spec = lake.spec(name, target, options={"side_tables": [*beside, f"{target}_not_there"], **options})
        report = run(parse_spec(spec), each_table(work))
        return {table.table: table.outcome for table in report.tables}

    done = dict.fromkeys(beside, "done")
    assert job(rewrite_manifests, min_manifests=2) == {target: "nothing", **done}
    assert job(compact_data_files, min_input_files=2) == {target: "nothing", **done}
    # each follows its own policy and that of its target, as they are at that time
    deletes, hashed, read, *shared = beside
    policies = {deletes: {ALLOW: "none"}, hashed: {MIN_ROW_AGE: "10 years"}, read: {MIN_SNAPSHOT_AGE: "1e8"}}
    for name, own in policies.items():
        lake.table(name).update_properties({**own})
    retained = {deletes: "unsupported", hashed: "failed", read: "nothing"}
    assert job(expire_snapshots, max_age=0, dry_run=True)[deletes] == "nothing"
    expired = {target: "nothing", **retained, **dict.fromkeys(shared, "done")}
    assert job(expire_snapshots, max_age=0, retain_last=1) == expired
    for name, own in policies.items():
        lake.table(name).update_properties(dict.fromkeys(own))
    lake.table(target).update_properties({ALLOW: "rewrite_manifests"})
    refused = dict.fromkeys((target, deletes, hashed, read), "unsupported")
    assert job(expire_snapshots, max_age=0, retain_last=1) == refused | dict.fromkeys(shared, "nothing")
    lake.table(target).update_properties({ALLOW: None})
    expired |= dict.fromkeys(retained, "done") | dict.fromkeys(shared, "nothing")
    assert job(expire_snapshots, older_than="2100-01-01T00:00:00+00:00", retain_last=1) == expired
    assert [count(lake, name, 0) for name in beside[:3]] == [1, 1, 1]
    assert [lake.duckdb_rows(name, "count(*)") for name in beside] == counted
    # the rows that ingestion needs
    position = Position("files", "files", {"chapter": f"c{BATCHES - 1}"})
    assert file_memory.recall(lake.spark, "lake", target, position).all == {"f"}
    messages = quarantine.messages(IcebergTable(lake.spark, "lake", quarantine_of(target)), target)
    assert messages.count() == BATCHES


def test_a_table_whose_metadata_cannot_be_loaded_fails_alone(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "lakecdc.runtime.progress")
    descriptions: list[str | None] = []

    def work(table: IcebergTable, spec: JobSpec) -> TableReport:
        descriptions.append(table.spark.sparkContext.getLocalProperty("spark.job.description"))
        return rewrite_manifests(table, spec)

    names = [create(lake, 2) for _ in range(4)]
    for broken in (names[0], names[2]):
        lake.break_metadata(broken)
    spec = parse_spec(lake.spec("rewrite_manifests", *names[:2], options={"side_tables": names[2:]}))
    report = run(spec, each_table(work))
    assert [t.outcome for t in report.tables] == ["failed", "nothing", "failed", "nothing"], report.error
    assert descriptions == [f"rewrite_manifests {name}" for name in (names[1], names[3])]
    assert lake.spark.sparkContext.getLocalProperty("spark.job.description") is None
    assert "progress of rewrite_manifests: 4 of 4 tables, in " in caplog.text
    assert all("Cannot load the table" in str(report.tables[n].reason) for n in (0, 2))


@V3
def test_delete_debt_is_the_same_from_summaries_and_from_manifests(lake: Lake, version: int) -> None:
    name = create(lake, version)
    fill(lake, name, files=2, rows=20)
    delete_by_key(lake, name, range(5), "new")
    delete_by_key(lake, name, range(5, 8))
    lake.sql(f"DELETE FROM lake.{name} WHERE id = 30")

    def debts() -> list[DeleteDebt]:
        table = lake.pyiceberg().load_table(name)
        return [debt_of(table), _count(table, next(branch_snapshots(table)))]

    assert debts() == [DeleteDebt(2, 8, 1, 1)] * 2
    run_one(lake, rewrite_delete_files, name)
    summed, counted = debts()
    assert summed == counted
    assert (summed.equality_delete_files, summed.equality_deletes) == (0, 0)
    # eight rows of the first files and the row deleted by position
    assert summed.position_deletes == 9
