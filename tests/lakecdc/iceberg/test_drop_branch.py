"""A commit that drops a branch is refused if others move or drop it first, in a SQL and a REST catalog."""

from __future__ import annotations

from typing import Any

import pytest

from lakecdc.contract.errors import ConflictError
from lakecdc.iceberg.commit import RowChanges, append_changes
from lakecdc.iceberg.fence import PositionFence
from lakecdc.iceberg.refs import Ref, change_refs, drop_branch
from lakecdc.iceberg.staging import stage_rows
from tests.conftest import Lake
from tests.lakecdc.iceberg.test_lease import Opened, catalogs, head, opened
from tests.on_demand import on_demand

__all__ = ["catalogs", "opened"]


@pytest.mark.parametrize("act", on_demand(("drop", "move"), in_ci=("move",)))
def test_a_concurrent_change_of_the_branch_refuses_its_drop(opened: Opened, lake: Lake, act: str) -> None:
    table, other = opened(), opened()
    start = head(table)
    change_refs(table, {"aside": Ref(start.id, "branch")})
    (new,), (more,) = (stage_rows(each.refresh(), lake.sql("SELECT 2L AS id")) for each in (table, other))
    acted: list[str] = []

    def drop(transaction: Any) -> None:
        drop_branch(table, transaction, "aside", start.id)
        if acted:
            return
        acted.append(act)
        if act == "drop":
            change_refs(other, {"aside": None})
        else:
            other.java.newAppend().appendFile(more).toBranch("aside").commit()

    with pytest.raises(ConflictError, match="was moved or dropped"):
        append_changes(table, RowChanges([new]), PositionFence(None), then=drop)
    assert acted and head(table).id == start.id
