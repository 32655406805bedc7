"""The proof detects deliberate damage, and then nothing is published."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest
from pyroaring import BitMap64
from pyspark.sql import DataFrame

from lakecdc.contract.errors import SpecError, VerificationError
from lakecdc.iceberg.staging import WrittenDeletes
from lakecdc.iceberg.table import DELETES_SHARED, IcebergTable
from lakecdc.maintain.delete_files import job as delete_files
from lakecdc.maintain.delete_files import plan, verify
from lakecdc.maintain.verify_rows import Fingerprint
from lakecdc.writer.deletes import FilePositions, Target, Writer, writer_of
from tests.conftest import Lake
from tests.lakecdc.maintain.delete_files.support import change, convert, create, insert, run, spark_rows
from tests.lakecdc.maintain.delete_files.test_concurrency import written_files
from tests.lakecdc.maintain.support import count
from tests.on_demand import on_demand
from tests.versions import V2


def damaged(hit: BitMap64, kind: str, row: int = 15) -> BitMap64:
    """Return positions as a broken search would find them."""
    if kind == "shifted":
        return BitMap64(position + 1 for position in hit)
    less, more = BitMap64([3]), BitMap64([row])
    return {"one too few": hit - less, "one too many": hit | more, "another one": (hit - less) | more}[kind]


DAMAGES = ("one too few", "one too many", "another one", "shifted")


def table_with_deletes(lake: Lake, version: int) -> str:
    name = create(lake, "id bigint, v string", version)
    insert(lake, name, "SELECT id, 'a' AS v FROM range(20) ORDER BY id")
    change(lake, name, ["id"], "SELECT id FROM range(5)")
    return name


def damage(monkeypatch: pytest.MonkeyPatch, kind: str, row: int = 15, groups: int = 0) -> None:
    """Let the job write wrong positions, starting at a group."""
    count = itertools.count()

    def broken_writer_of(table: IcebergTable) -> Writer:
        write = writer_of(table)

        def broken(files: Iterable[FilePositions], target: Target) -> Iterator[WrittenDeletes]:
            return write((replace(file, hit=damaged(file.hit, kind, row)) for file in files), target)

        return broken if next(count) >= groups else write

    monkeypatch.setattr(delete_files, "writer_of", broken_writer_of)


@pytest.mark.parametrize(
    ("kind", "version"),
    on_demand([*((kind, 2) for kind in DAMAGES), ("shifted", 3)], in_ci=[("one too few", 2), ("shifted", 3)]),
)
def test_a_wrong_result_is_not_published(lake: Lake, version: int, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = table_with_deletes(lake, version)
    head, rows = lake.table(name).head(), spark_rows(lake, name)
    damage(monkeypatch, kind)
    keep = kind == "shifted"
    with pytest.raises(VerificationError, match="has 15 live rows") as caught:
        run(lake, name, keep_failed_files=keep)
    assert caught.value.attributes["data_file"].endswith(".parquet")
    assert lake.table(name).head() == head
    assert spark_rows(lake, name) == rows
    left = written_files(lake, name)
    assert bool(left) is keep
    folders = caught.value.attributes.get("failed_files", [])
    assert len(folders) == keep and all("/deletes-" in folder and folder in str(caught.value) for folder in folders)


def test_commits_before_a_failure_are_reported(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    name = create(lake, "id bigint NOT NULL", 2, "bucket(4, id)")
    insert(lake, name, "SELECT id FROM range(40)")
    change(lake, name, ["id"], "SELECT id FROM range(20)")
    rows = spark_rows(lake, name)
    monkeypatch.setattr(plan, "GROUP_DATA_FILES", 1)
    damage(monkeypatch, "shifted", groups=1)
    report = run(lake, name)
    assert report.outcome == "failed" and "would change the rows of the table" in str(report.reason)
    assert (report.metrics["commits"], report.metrics["groups_left"]) == (1, 3)
    assert (count(lake, name, 2), spark_rows(lake, name)) == (3, rows)


@pytest.mark.soak
def test_without_proof_the_damage_would_be_published(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Show that the proof is what stops the damage."""
    name = table_with_deletes(lake, 2)
    damage(monkeypatch, "one too few")
    report = run(lake, name, verify="off", verify_off_reason="to see what happens")
    assert report.metrics["verified"] == {"mode": "off", "files": 0, "of": 1, "reason": "to see what happens"}
    assert len(spark_rows(lake, name)) == 16


def test_turning_the_proof_off_needs_a_reason(lake: Lake) -> None:
    for reason in (None, "  "):
        with pytest.raises(SpecError, match="without a reason"):
            run(lake, "a.b", verify="off", verify_off_reason=reason)


def test_a_sample_reports_its_size(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    name = create(lake, "id bigint", 3)
    insert(lake, name, "SELECT id FROM range(100)", files=4)
    change(lake, name, ["id"], "SELECT id FROM range(100) WHERE id % 3 = 0")
    monkeypatch.setattr(verify, "SAMPLE_MINIMUM", 2)
    report = convert(lake, name, verify="sample")
    assert report.metrics["verified"] == {"mode": "sample", "files": 2, "of": 4}


def test_a_delete_set_too_large_for_a_full_proof_is_sampled_and_reported(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, cached, compute = table_with_deletes(lake, 2), [], verify.digest
    lake.spark.conf.unset(DELETES_SHARED)

    def digest(rows: DataFrame) -> Fingerprint:
        cached.append([s.conf.get(DELETES_SHARED, "true") for s in (rows.sparkSession, lake.spark)])
        return compute(rows)

    monkeypatch.setattr(verify, "digest", digest)
    monkeypatch.setattr(verify, "most_keys", lambda spark: 4)
    assert convert(lake, name).metrics["verified"]["mode"] == "sample"
    # cached parts of such a set are useless later; other tables' jobs keep theirs
    assert cached == [["false", "true"]] * 2


@V2
def test_dry_run_counts_and_changes_nothing(lake: Lake, version: int) -> None:
    name = table_with_deletes(lake, version)
    head, refs = lake.table(name).head(), dict(lake.table(name).java.refs())
    metadata = lake.pyiceberg().load_table(name).metadata_location
    report = run(lake, name, dry_run=True)
    assert (report.outcome, report.reason) == ("done", "Dry run: nothing was changed.")
    assert report.snapshot_before == report.snapshot_after == str(head.id if head else None)
    assert report.metrics["positions"] == 5
    assert report.metrics["data_files_touched"] == report.metrics["equality_delete_files_after"] == 1
    assert report.metrics["commits"] == report.metrics["delete_files_added"] == 0
    assert lake.pyiceberg().load_table(name).metadata_location == metadata
    assert list(refs) == list(dict(lake.table(name).java.refs())) == ["main"]
    assert (count(lake, name, 1), written_files(lake, name)) == (0, set())
