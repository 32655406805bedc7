"""Delete debt and its limits."""

from __future__ import annotations

import pytest

from lakecdc.contract.errors import SpecError
from lakecdc.metadata.debt import DebtLimits, DeleteDebt, from_summaries

CLEAN = {"total-delete-files": "0", "total-equality-deletes": "0", "total-position-deletes": "0"}
DEBT = {"total-delete-files": "5", "total-equality-deletes": "20", "total-position-deletes": "7"}


def test_a_branch_without_snapshots_owes_nothing() -> None:
    assert from_summaries([]) == DeleteDebt()
    assert from_summaries([CLEAN]) == DeleteDebt()


def test_summaries_tell_the_files_of_each_kind() -> None:
    head = {**DEBT, "added-equality-delete-files": "2", "added-delete-files": "2"}
    assert from_summaries([head, {**CLEAN, "total-delete-files": "3"}]) == DeleteDebt(2, 20, 3, 7)


@pytest.mark.parametrize("missing", DEBT)
def test_without_totals_they_tell_nothing(missing: str) -> None:
    assert from_summaries([{name: value for name, value in CLEAN.items() if name != missing}]) is None


def test_where_the_way_back_is_cut_they_tell_nothing() -> None:
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
def test_limits_that_limit_nothing_are_refused(limits: dict[str, int]) -> None:
    with pytest.raises(SpecError, match="max_equality_delete_files"):
        DebtLimits(**limits)
