"""Estimated cost of jobs, and their benefit for readers."""

from __future__ import annotations

import pytest

from lakecdc.metadata.file_facts import Content, LiveFile, by_partition
from lakecdc.metadata.health import measure_health
from lakecdc.metadata.work import Work, of_delete_files

SCOPE = (0, "{}")


def rewriting(files: int, delete_files: int, vectors: int = 0, rows: int = 1000, deletes: int = 10) -> Work:
    """Estimate a table whose first files are older than its equality deletes, and whose others have a vector each."""
    live = [LiveFile(Content.DATA, SCOPE, 9000, rows, 1, f"old-{number}") for number in range(files)]
    live += [LiveFile(Content.DATA, SCOPE, 9000, rows, 3, f"new-{number}") for number in range(vectors)]
    live += [LiveFile(Content.DELETION_VECTOR, SCOPE, 50, 1, 3, f"new-{number}") for number in range(vectors)]
    live += [LiveFile(Content.EQUALITY_DELETES, SCOPE, 500, deletes, 2, None) for _ in range(delete_files)]
    health = measure_health(live, target_file_bytes=9000, snapshots=1, manifests=())
    return of_delete_files(health, by_partition(live)[SCOPE], 3)


def test_cost_of_rewriting_deletes_follows_the_data_files_they_apply_to() -> None:
    few, many = rewriting(2, 3), rewriting(40, 3)
    assert many.core_seconds > 1.5 * few.core_seconds
    # the same rows in fewer files cost less, although the search is the same
    assert rewriting(2, 3, rows=20_000).core_seconds < many.core_seconds
    assert many.benefit == 40 * 3 - 40 * 0.05 > few.benefit


def test_files_with_a_vector_cost_little() -> None:
    settled = rewriting(2, 3, vectors=38)
    assert rewriting(2, 3).core_seconds < settled.core_seconds < rewriting(40, 3).core_seconds
    assert settled.benefit == rewriting(2, 3).benefit


def test_the_cost_of_a_delete_does_not_depend_on_its_data_files() -> None:
    some, one = (
        rewriting(files, 20, deletes=2000).core_seconds - rewriting(files, 20).core_seconds for files in (40, 1)
    )
    assert some == pytest.approx(one, rel=0.1) and one > 0
