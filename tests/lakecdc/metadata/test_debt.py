"""Delete debt, its limits, and settled delete files."""

from __future__ import annotations

from typing import Any

import pytest

from lakecdc.contract.errors import SpecError
from lakecdc.contract.rewriting import RewriteDeleteFilesOptions
from lakecdc.metadata.debt import DebtLimits, DeleteDebt, are_settled, from_summaries
from lakecdc.metadata.file_facts import Content, LiveFile

CLEAN = {"total-delete-files": "0", "total-equality-deletes": "0", "total-position-deletes": "0"}
DEBT = {"total-delete-files": "5", "total-equality-deletes": "20", "total-position-deletes": "7"}
EQUALITY, POSITIONS, VECTOR = Content.EQUALITY_DELETES, Content.POSITION_DELETES, Content.DELETION_VECTOR
DATA = [LiveFile(Content.DATA, (0, "p"), 100, 10, 3, name) for name in ("a", "b")]


def test_a_branch_without_snapshots_has_no_debt() -> None:
    assert from_summaries([]) == DeleteDebt()
    assert from_summaries([CLEAN]) == DeleteDebt()


def test_summaries_count_delete_files_by_kind() -> None:
    head = {**DEBT, "added-equality-delete-files": "2", "added-delete-files": "2"}
    assert from_summaries([head, {**CLEAN, "total-delete-files": "3"}]) == DeleteDebt(2, 20, 3, 7)


@pytest.mark.parametrize("missing", DEBT)
def test_summaries_without_totals_are_not_counted(missing: str) -> None:
    assert from_summaries([{name: value for name, value in CLEAN.items() if name != missing}]) is None


def test_summaries_with_expired_ancestors_are_not_counted() -> None:
    assert from_summaries([{**DEBT, "added-equality-delete-files": "1", "added-delete-files": "1"}]) is None


def test_a_count_that_equals_its_limit_is_not_above_it() -> None:
    debt = DeleteDebt(2, 20, 3, 7)
    assert debt.above(DebtLimits(max_equality_delete_files=2, max_position_deletes=7)) == {}
    assert debt.above(DebtLimits(max_equality_delete_files=1, max_position_deletes=7)) == {"equality_delete_files": 2}
    assert debt.above(DebtLimits(max_equality_deletes=0, max_position_delete_files=0)) == {
        "equality_deletes": 20,
        "position_delete_files": 3,
    }


@pytest.mark.parametrize("limits", [{}, {"max_equality_deletes": -1}])
def test_limits_without_a_value_are_refused(limits: dict[str, int]) -> None:
    with pytest.raises(SpecError, match="max_equality_delete_files"):
        DebtLimits(**limits)


def delete(kind: Content, names: str | None, sequence: int = 4, rows: int = 2) -> LiveFile:
    return LiveFile(kind, (0, "p"), 10, rows, sequence, names)


def settled(version: int, *deletes: LiveFile, **options: Any) -> bool:
    return are_settled([*DATA, *deletes], version, RewriteDeleteFilesOptions(**options))


def test_at_most_one_delete_file_per_data_file_is_settled() -> None:
    assert settled(2) and settled(3)
    assert settled(2, delete(POSITIONS, "a"), delete(POSITIONS, "b", sequence=3))
    assert settled(3, delete(VECTOR, "a"), delete(VECTOR, "b"))


@pytest.mark.parametrize(
    ("version", "deletes"),
    [
        (2, [delete(EQUALITY, None)]),
        (3, [delete(EQUALITY, None, rows=0)]),
        (2, [delete(POSITIONS, None)]),
        (2, [delete(POSITIONS, "a"), delete(POSITIONS, "a", sequence=5)]),
        (3, [delete(POSITIONS, "a")]),
        (3, [delete(VECTOR, "gone")]),
        (2, [delete(POSITIONS, "a", sequence=2)]),
        (3, [delete(VECTOR, "a", rows=0)]),
    ],
    ids=["equality", "no keys", "of a partition", "two", "no vector", "of no file", "too old", "no rows"],
)
def test_unsettled_delete_files_are_debt(version: int, deletes: list[LiveFile]) -> None:
    assert not settled(version, *deletes)
    keeps = deletes[0].content is not EQUALITY
    assert settled(version, *deletes, position_deletes="keep") is keeps


def test_several_delete_files_are_tolerated_up_to_a_limit() -> None:
    two = [delete(POSITIONS, "a"), delete(POSITIONS, "a", sequence=5)]
    assert settled(2, *two, min_input_files=3) and not settled(2, *two, min_input_files=2)
