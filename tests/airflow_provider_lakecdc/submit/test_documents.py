"""The documents of a try: spec and report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import ObjectStoragePath

from airflow_provider_lakecdc.submit.documents import Documents, without_connection
from lakecdc.contract.report import JobReport, TableReport

REPORT = JobReport("ingest", "a", "b", tables=(TableReport("s.t", "done"),))


@pytest.mark.parametrize("scheme", ["file", "memory"])
def test_reading_and_writing_go_through_any_store(context: Any, tmp_path: Path, scheme: str) -> None:
    documents = Documents.of_try(f"{scheme}://{tmp_path}/documents", context)
    assert documents.read_report() is None
    documents.write_spec("{}")
    assert (ObjectStoragePath(documents.folder) / "spec.json").read_text() == "{}"
    (ObjectStoragePath(documents.folder) / "report.json").write_text(REPORT.to_json())
    assert documents.read_report() == REPORT
    documents.write_spec("{}")
    assert documents.read_report() is None


def test_a_mapped_task_has_a_folder_per_index(context: Any) -> None:
    context["ti"].map_index = 0
    assert Documents.of_try("file:///x/", context).folder == "file:///x/d/r/t/0/try-1"


def test_each_run_has_its_own_folder_below_the_dags(context: Any) -> None:
    def folder(run_id: str) -> str:
        context["ti"].run_id = run_id
        return Documents.of_try("file:///x", context).folder.removeprefix("file:///x/d/").removesuffix("/t/try-1")

    ids = ["a:b", "a+b", "a_b", "a__b", "a/b", "a::b", ".", "..", "...", "", "a~b", "manual__2026-01-01T00:00:00+00:00"]
    folders = [folder(each) for each in ids]
    assert len(set(folders)) == len(ids)
    assert folders[2] == "a_b" and folders[0].startswith("a_b~")
    # characters valid in both ids and paths are preserved, and a name never equals that of another id
    assert folder(folders[0]) != folders[0]
    assert all("/" not in each and each.strip(".") for each in folders)


def test_without_a_context_it_is_a_preview() -> None:
    assert Documents.of_try("file:///x", None).spec_uri == "file:///x/preview/spec.json"


@pytest.mark.parametrize(
    ("uri", "seen_by_the_job"),
    [
        ("s3://aws_default@bucket/a@b", "s3://bucket/a@b"),
        ("s3://bucket/a", "s3://bucket/a"),
        ("file:///home/me@work/x", "file:///home/me@work/x"),
    ],
)
def test_the_job_gets_no_airflow_connection(uri: str, seen_by_the_job: str) -> None:
    assert without_connection(uri) == seen_by_the_job
    assert Documents(uri).report_uri == f"{seen_by_the_job}/report.json"
