"""Unproven files are not published."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lakecdc.key_search import bounded
from lakecdc.maintain import rewrite, verify_rows
from lakecdc.maintain.compact import compact_data_files
from lakecdc.maintain.rewriting import in_tasks, proof
from lakecdc.maintain.rewriting.ranges import ranges_of
from lakecdc.writer.parquet import FileColumn
from tests.conftest import Lake
from tests.lakecdc.maintain.support import create, delete_by_key, duckdb_rows, files_on_disk, fill, head, run
from tests.versions import V3


def test_a_failed_proof_publishes_nothing_and_keeps_its_files_on_request(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = create(lake, 2)
    fill(lake, name)
    rows, on_disk, before = duckdb_rows(lake, name), files_on_disk(lake, name), head(lake, name)
    # the last row of each part
    monkeypatch.setattr(
        in_tasks, "ranges_of", lambda units, **kind: [replace(one, last=99) for one in ranges_of(units, **kind)]
    )
    for keep in (False, True):
        report = run(lake, compact_data_files, name, keep_failed_files=keep)
        assert report.outcome == "failed" and "5 files have other rows than the metadata says" in (report.reason or "")
        left = files_on_disk(lake, name) - on_disk
        assert len(left) == keep
        assert all(file.rsplit("/", 1)[1] in (report.reason or "") for file in left)
        assert duckdb_rows(lake, name) == rows
    assert head(lake, name) == before


def test_row_lineage_is_part_of_the_proof(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    name = create(lake, 3)
    fill(lake, name)

    # nulls instead of the values
    monkeypatch.setattr(in_tasks, "FileColumn", lambda *facts: replace(FileColumn(*facts), source=None))
    report = run(lake, compact_data_files, name)
    assert report.outcome == "failed" and "with other values" in (report.reason or "")


def test_icebergs_reader_also_reads_a_file_in_orc_and_one_in_avro(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    name = create(lake, 2)
    for kind in ("orc", "avro", "parquet"):
        lake.sql(f"ALTER TABLE lake.{name} SET TBLPROPERTIES ('write.format.default'='{kind}')")
        fill(lake, name)
    checked, check = list[str](), proof._check_sample

    def check_again(table: Any, columns: Any, evidence: Any, locations: list[str]) -> None:
        checked.extend(locations)
        check(table, columns, evidence, locations)

    monkeypatch.setattr(proof, "_check_sample", check_again)
    report = run(lake, compact_data_files, name)
    assert report.outcome == "done" and "by_iceberg" not in report.metrics, report
    assert {"orc", "avro"} <= {location.rpartition(".")[2] for location in checked}


@V3
def test_equality_deletes_missed_by_the_search_stop_the_rewrite(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    name = create(lake, version)
    fill(lake, name)
    delete_by_key(lake, name, range(50))
    before = head(lake, name)
    monkeypatch.setattr(bounded, "_deletes_of", lambda *_: [])
    report = run(lake, compact_data_files, name)
    assert report.outcome == "failed" and "Iceberg's reader finds" in (report.reason or ""), report
    assert head(lake, name) == before


def test_rows_counted_twice_by_spark_are_read_again(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    name = create(lake, 2)
    fill(lake, name)
    monkeypatch.setattr(rewrite, "refusals", lambda _, __, units: ["it is a test"] * len(units))
    write = verify_rows.fingerprint
    twice = iter([2])

    # as after the loss of an executor in a cluster
    def observed_twice(values: Any) -> Any:
        written = write(values)
        return replace(written, rows=next(twice, 1) * written.rows)

    monkeypatch.setattr(verify_rows, "fingerprint", observed_twice)
    report = run(lake, compact_data_files, name)
    assert (report.outcome, report.metrics["rows"]) == ("done", 500)
    assert report.metrics["by_iceberg"] == "it is a test"
