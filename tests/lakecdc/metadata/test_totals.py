"""Delete debt is computed from snapshot summaries alone."""

from __future__ import annotations

import pytest

from lakecdc.metadata.totals import equality_delete_files, from_summary


def snapshot(total_keys: int, total_files: int, added: int = 0, removed: int = 0, other: int = 0) -> dict[str, str]:
    return {
        "total-equality-deletes": str(total_keys),
        "total-delete-files": str(total_files),
        "added-equality-delete-files": str(added),
        "removed-equality-delete-files": str(removed),
        "added-delete-files": str(added + other),
    }


@pytest.mark.parametrize(
    ("newest_first", "files"),
    [
        ([], 0),
        ([snapshot(0, 7)], 0),
        ([snapshot(30, 3, added=1), snapshot(20, 2, added=2), snapshot(0, 0)], 3),
        ([snapshot(10, 9, added=1), snapshot(0, 8, removed=4, other=4)], 1),
        ([snapshot(20, 9, removed=1, other=3), snapshot(30, 7, added=3), snapshot(0, 4)], 2),
        # the first snapshot of the table
        ([snapshot(20, 2, added=1), snapshot(10, 1, added=1)], 2),
        # the history is cut by expiry
        ([snapshot(20, 9, added=1), snapshot(10, 8, added=1)], 9),
    ],
)
def test_equality_delete_files_are_counted(newest_first: list[dict[str, str]], files: int) -> None:
    assert equality_delete_files(newest_first) == files


def test_totals_missing_in_a_summary_are_zero() -> None:
    totals = from_summary({"total-data-files": "4", "total-files-size": "400"})
    assert (totals.data_files, totals.bytes, totals.records, totals.delete_files) == (4, 400, 0, 0)
