"""Specs and reports expire by age, together per try, and nothing else is removed."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import fsspec
import pytest
from airflow.sdk import ObjectStoragePath

from airflow_provider_lakecdc.exceptions import JobBadInputError
from airflow_provider_lakecdc.operators.remove_documents import RemoveDocumentsOperator
from airflow_provider_lakecdc.submit.documents import Documents

DAY = 24 * 3600.0


def documents(folder: Path, name: str, spec: float, report: float | None = None) -> Path:
    """Make documents of a try, so many days old."""
    place = folder / name
    place.mkdir(parents=True)
    for file, days in (("spec.json", spec), ("report.json", report)):
        if days is not None:
            (place / file).write_text("{}")
            os.utime(place / file, (time.time() - days * DAY,) * 2)
    return place


def removed(base: str, **arguments: Any) -> dict[str, int]:
    operator = RemoveDocumentsOperator(task_id="t", documents_uri=base, **{"max_age": 10 * DAY, **arguments})
    removed_counts = operator.execute({})
    assert removed_counts.pop("undelivered") == 0
    return removed_counts


def test_documents_of_old_tries_are_removed(tmp_path: Path) -> None:
    base, folder = f"file://{tmp_path}/documents", tmp_path / "documents"
    assert removed(base) == {"documents": 0, "bytes": 0, "kept": 0}
    old = documents(folder, "d/old/t/0/try-1", 40, 39)
    killed = documents(folder, "d/old/t/1/try-1", 40)
    (killed / "findings-a.b=20c.jsonl").write_text("{}")
    os.utime(killed / "findings-a.b=20c.jsonl", (time.time() - 40 * DAY,) * 2)
    young = documents(folder, "d/young/t/try-1", 1, 1)
    # a long job: the spec is old, but its report is not
    long = documents(folder, "e/long/t/try-2", 11, 9)
    other = documents(folder, "e/notes/try", 40)
    (other / "mine.json").write_text("{}")
    assert removed(base, is_dry="True") == {"documents": 4, "bytes": 8, "kept": 4}
    assert old.exists()
    assert removed(base) == {"documents": 4, "bytes": 8, "kept": 4}
    assert not killed.exists() and not (folder / "d/old").exists()
    assert {path.name for removed_counts in (young, long, other) for path in removed_counts.iterdir()} == {
        *("spec.json", "report.json", "mine.json")
    }
    assert removed(base) == {"documents": 0, "bytes": 0, "kept": 4}


def test_any_store_of_fsspec_works(context: Any) -> None:
    documents = Documents.of_try("memory://lake/documents", context)
    documents.write_spec("{}")
    written = fsspec.filesystem("memory").store[ObjectStoragePath(f"{documents.folder}/spec.json").path]
    written.modified -= timedelta(days=20)
    assert removed("memory://lake/documents") == {"documents": 1, "bytes": 2, "kept": 0}
    assert not (ObjectStoragePath(documents.folder) / "spec.json").exists()


@pytest.mark.parametrize("age", ["3600", 0.0, float("nan")])
def test_documents_younger_than_a_day_stay(tmp_path: Path, age: Any) -> None:
    with pytest.raises(JobBadInputError, match="a day"):
        removed(f"file://{tmp_path}", max_age=age)
