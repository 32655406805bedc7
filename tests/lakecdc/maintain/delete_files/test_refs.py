"""A conversion changes its branch and no other branch or tag."""

from __future__ import annotations

import pytest

from lakecdc.contract.errors import InputError
from tests.conftest import Lake
from tests.lakecdc.maintain.delete_files.conftest import Meanwhile, once
from tests.lakecdc.maintain.delete_files.support import Rows, change, convert, create, insert, run, spark_rows
from tests.lakecdc.maintain.support import count
from tests.versions import V2, V3


def at(lake: Lake, name: str, ref: str) -> Rows:
    """Return the rows of a branch or tag."""
    rows = lake.sql(f"SELECT * FROM lake.{name} VERSION AS OF '{ref}'").collect()
    return sorted((tuple(row) for row in rows), key=repr)


def table_with_refs(lake: Lake, version: int) -> str:
    """Create two equality-delete files; tag ``early`` needs the first one, branch ``audit`` both."""
    name = create(lake, "id bigint, v string", version)
    insert(lake, name, "SELECT id, 'a' AS v FROM range(20)")
    change(lake, name, ["id"], "SELECT id FROM range(5)")
    lake.sql(f"ALTER TABLE lake.{name} CREATE TAG early")
    change(lake, name, ["id"], "SELECT id FROM range(10, 15)", "SELECT id, 'b' AS v FROM range(10, 12)")
    lake.sql(f"ALTER TABLE lake.{name} CREATE BRANCH audit")
    return name


@V2
def test_branches_and_tags_are_readable_after_main_is_converted(lake: Lake, version: int) -> None:
    name = table_with_refs(lake, version)
    before = {ref: at(lake, name, ref) for ref in ("early", "audit")}
    convert(lake, name)
    lake.sql(
        f"CALL lake.system.expire_snapshots(table => '{name}', older_than => TIMESTAMP '2099-01-01 00:00:00', "
        "retain_last => 1)"
    )
    assert {ref: at(lake, name, ref) for ref in ("early", "audit")} == before
    assert [count(lake, name, 2, ref) for ref in ("main", "early", "audit")] == [0, 1, 2]
    # the branch's deletes are converted once it becomes main
    lake.sql(f"CALL lake.system.set_current_snapshot(table => '{name}', ref => 'audit')")
    assert spark_rows(lake, name) == before["audit"]
    convert(lake, name)


@V3
def test_a_branch_is_converted_while_main_needs_its_deletes(lake: Lake, version: int) -> None:
    name = table_with_refs(lake, version)
    lake.sql(f"INSERT INTO lake.{name}.branch_audit VALUES (100, 'only here')")
    before = {ref: at(lake, name, ref) for ref in ("main", "early", "audit")}
    main = lake.table(name).head()
    report = run(lake, name, branch="audit")
    assert (report.outcome, report.metrics["equality_delete_files_after"]) == ("done", 0)
    assert {ref: at(lake, name, ref) for ref in ("main", "early", "audit")} == before
    assert [count(lake, name, 2, ref) for ref in ("main", "early", "audit")] == [2, 1, 0]
    assert lake.table(name).head() == main
    assert set(dict(lake.table(name).java.refs())) == {"main", "early", "audit"}
    assert run(lake, name, branch="audit").outcome == "nothing"
    convert(lake, name)


def test_a_missing_branch_is_bad_input(lake: Lake, meanwhile: Meanwhile) -> None:
    name = table_with_refs(lake, 2)
    for no_branch in ("nowhere", "early"):
        with pytest.raises(InputError, match=no_branch):
            run(lake, name, branch=no_branch)
    # a branch that is dropped meanwhile does not return
    meanwhile(once(lambda: lake.sql(f"ALTER TABLE lake.{name} DROP BRANCH audit")))
    with pytest.raises(InputError, match="audit"):
        run(lake, name, branch="audit")
    assert set(dict(lake.table(name).java.refs())) == {"main", "early"}
    assert count(lake, name, 2) == 2
