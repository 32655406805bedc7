"""The name of a folder identifies the writer of its files."""

from __future__ import annotations

import pytest

from lakecdc.metadata.marked_folders import Mark, mark, mark_in

# 2026-01-04T03:30:00Z
START = 1767497400123


@pytest.mark.parametrize(
    ("job", "application", "folder"),
    [
        ("ingest", "application_1767497399000_0042", "lakecdc-ingest-20260104T033000Z-973990000042"),
        ("sort_data_files", "app-20260104033000-0001", "lakecdc-sort_data_files-20260104T033000Z-040330000001"),
        ("a b/c: Ä-", "spark-3f", "lakecdc-a_b_c-20260104T033000Z-spark3f"),
        ("..", "", "lakecdc-job-20260104T033000Z-0"),
    ],
)
def test_a_mark_is_one_folder_visible_to_all_engines(job: str, application: str, folder: str) -> None:
    folder_mark = mark(job, START, application)
    assert folder_mark.folder == folder
    assert mark_in(f"{folder}/x") == folder_mark
    assert folder_mark.started == "2026-01-04T03:30:00+00:00"


@pytest.mark.parametrize(
    "location",
    [
        "s3://lake/my shop/orders/data/{}/id_bucket=3/00000-7.parquet",
        "data/{}/deletes-1/x.puffin",
        "data/0101/1100/0011/10101010/{}/0000/1111/0101/11110000/v=a/00000-7.parquet",
        "data/0101/1100/0011/10101010-{}/0000/1111/0101/11110000-00000-7.parquet",
    ],
)
def test_the_mark_is_found_in_every_layout(location: str) -> None:
    folder_mark = Mark("compact_data_files", "20260104T033000Z", "040330000001")
    assert mark_in(location.format(folder_mark.folder)) == folder_mark


@pytest.mark.parametrize(
    "location",
    [
        "data/00000-7.parquet",
        "data/lakecdc-ingest-20260104-1/x",
        "data/lakecdc-ingest-20260104T033000Z-1.parquet",
        "data/xlakecdc-ingest-20260104T033000Z-1/x",
    ],
)
def test_other_names_have_no_mark(location: str) -> None:
    assert mark_in(location) is None


def test_an_invalid_time_is_shown_unchanged() -> None:
    folder_mark = mark_in("lakecdc-ingest-20269904T033000Z-1/x")
    assert folder_mark is not None and folder_mark.started == "20269904T033000Z"
