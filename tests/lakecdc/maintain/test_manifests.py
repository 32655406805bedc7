"""Manifests are rewritten only if there are too many small ones."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import pytest
from pyspark.sql import functions as F

from lakecdc.contract.errors import VerificationError
from lakecdc.contract.rewriting import RewriteManifestsOptions
from lakecdc.iceberg import manifests
from lakecdc.iceberg.jvm import iterate
from lakecdc.iceberg.manifests import StagedManifests, stage_manifests
from lakecdc.maintain.manifests import comparable_entries, rewrite_manifests
from lakecdc.maintain.verify_rows import Proof, read_back
from lakecdc.metadata import names
from lakecdc.metadata.manifests import Manifest, planned_manifests, refusal, worthwhile_specs
from tests.conftest import Lake
from tests.lakecdc.maintain.support import (
    append,
    create,
    delete_by_key,
    duckdb_rows,
    files_on_disk,
    fill,
    head,
    metadata_location,
    run,
    spark_rows,
)
from tests.on_demand import on_demand
from tests.versions import V3


@V3
def test_many_manifests_are_merged(lake: Lake, version: int) -> None:
    name = create(lake, version, "bucket(2, id)")
    fill(lake, name, files=6, rows=10)
    delete_by_key(lake, name, range(3), "new")
    delete_by_key(lake, name, range(3))
    before, location = duckdb_rows(lake, name), metadata_location(lake, name)
    dry = run(lake, rewrite_manifests, name, dry_run=True)
    assert dry.outcome == "nothing" and dry.metrics["manifests_before"] == 9
    assert metadata_location(lake, name) == location
    report = run(lake, rewrite_manifests, name)
    assert report.outcome == "done", report.reason
    assert (report.metrics["manifests_after"], report.metrics["delete_manifests_after"]) == (2, 1)
    assert report.snapshot_after == str(head(lake, name))
    assert duckdb_rows(lake, name) == before
    snapshot = lake.table(name).head()
    assert snapshot is not None and snapshot.summary[names.JOB] == "rewrite_manifests"
    again = run(lake, rewrite_manifests, name)
    assert (again.outcome, again.reason) == ("nothing", "2 manifests are fewer than 8")
    assert "as few as" in (run(lake, rewrite_manifests, name, min_manifests=1).reason or "")


def test_only_specs_with_too_many_manifests_are_rewritten(lake: Lake) -> None:
    name = create(lake, 2)
    fill(lake, name, files=3, rows=10)
    lake.sql(f"ALTER TABLE lake.{name} ADD PARTITION FIELD d")
    fill(lake, name, files=3, rows=10)
    before = duckdb_rows(lake, name)
    report = run(lake, rewrite_manifests, name, min_manifests=2)
    # Iceberg itself merges the manifests of a spec to which a commit adds nothing
    assert report.metrics["specs"] == [1]
    assert (report.metrics["manifests_before"], report.metrics["manifests_after"]) == (4, 2)
    assert duckdb_rows(lake, name) == before


@pytest.mark.parametrize("keep", on_demand((False, True), in_ci=(True,)))
def test_a_failed_proof_leaves_the_table_unchanged(lake: Lake, monkeypatch: pytest.MonkeyPatch, keep: bool) -> None:
    name = create(lake, 3, "d")
    fill(lake, name, files=3, rows=10)
    lake.sql(f"DELETE FROM lake.{name} WHERE id = 5")
    before, location, on_disk = duckdb_rows(lake, name), metadata_location(lake, name), files_on_disk(lake, name, "")
    victim = next(iterate(lake.table(name).java.newScan().planFiles())).file()

    def losing(*args: Any) -> StagedManifests:
        staged = stage_manifests(*args)
        staged.transaction.newDelete().deleteFile(victim).commit()
        return staged

    monkeypatch.setattr(manifests, "stage_manifests", losing)
    with pytest.raises(VerificationError, match="not list the same files: ") as raised:
        run(lake, rewrite_manifests, name, min_manifests=2, keep_failed_files=keep)
    assert str(victim.location()) in raised.value.message
    assert (metadata_location(lake, name), duckdb_rows(lake, name)) == (location, before)
    left = {file for file in files_on_disk(lake, name, "") - on_disk if not file.endswith(".crc")}
    failed_files = raised.value.attributes.get("failed_files", [])
    assert len(failed_files) == (2 if keep else 0) and {urlsplit(file).path for file in failed_files} <= {
        urlsplit(file).path for file in left
    }
    assert ("remove_orphan_files" in str(raised.value)) is keep
    monkeypatch.undo()
    assert run(lake, rewrite_manifests, name, min_manifests=2).outcome == "done"
    assert duckdb_rows(lake, name) == before


@pytest.mark.parametrize(
    ("of_entry", "of_file"),
    [
        (["sequence_number"], ["first_row_id", "partition"]),
        pytest.param(
            ["file_sequence_number", "snapshot_id"], ["upper_bounds", "file_path", "spec_id"], marks=pytest.mark.soak
        ),
    ],
)
def test_the_proof_sees_each_fact_of_a_file(lake: Lake, of_entry: list[str], of_file: list[str]) -> None:
    name = create(lake, 3, "d")
    append(lake, name, 0, 2)
    entries = lake.table(name).metadata("entries")
    plain = comparable_entries(entries)
    proof = Proof(tuple(plain.columns), "all")
    expected = read_back(plain, proof)
    assert expected.rows == 2
    for fact in of_entry:
        assert read_back(comparable_entries(entries.withColumn(fact, F.col(fact) + 1)), proof) != expected, fact
    file = F.col("data_file")
    for fact in of_file:
        nothing = F.lit(None).cast(entries.select(f"data_file.{fact}").schema[0].dataType)
        changed = entries.withColumn("data_file", file.withField(fact, nothing))
        assert read_back(comparable_entries(changed), proof) != expected, fact


def test_a_table_without_snapshot_is_left_alone(lake: Lake) -> None:
    assert run(lake, rewrite_manifests, create(lake, 2)).reason == "the table has no snapshot"


def test_large_manifests_are_left_alone() -> None:
    large = [Manifest(f"m{n}", 0, 7_000_000, False) for n in range(10)]
    assert "on average" in (refusal(large, RewriteManifestsOptions(), 8_000_000) or "")
    assert refusal(large, RewriteManifestsOptions(min_average_bytes=8_000_000), 8_000_000) is None


def test_a_spec_is_rewritten_if_fewer_manifests_suffice() -> None:
    few = [Manifest("a", 0, 10, False), Manifest("b", 0, 10, True), Manifest("c", 1, 10, False)]
    assert worthwhile_specs(few, 100) == []
    assert worthwhile_specs([*few, Manifest("d", 1, 10, False)], 100) == [1]
    assert planned_manifests([*few, Manifest("d", 1, 10, False)], [1], 100) == len(few)


def test_manifests_of_a_spec_whose_column_was_dropped_stay(lake: Lake) -> None:
    """Iceberg fails on them or writes them without partition values, and Spark then cannot read their deletes."""
    name = create(lake, 3, "d")
    fill(lake, name, files=9, rows=10)
    lake.sql(f"DELETE FROM lake.{name} WHERE id < 5")
    lake.sql(f"ALTER TABLE lake.{name} DROP PARTITION FIELD d")
    lake.sql(f"ALTER TABLE lake.{name} DROP COLUMN d")
    before = spark_rows(lake, name)
    assert run(lake, rewrite_manifests, name, min_manifests=2).reason == "0 manifests are fewer than 2"
    assert spark_rows(lake, name) == before and len(before) == 85
