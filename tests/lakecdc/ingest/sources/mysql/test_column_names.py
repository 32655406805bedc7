"""Column names follow the statements and rows of the log."""

from __future__ import annotations

import pytest

from lakecdc.ingest.sources.mysql.column_names import ColumnNames
from lakecdc.ingest.sources.mysql.statements import STRICT, effects
from lakecdc.ingest.sources.mysql.table_map import LayoutError, Named
from lakecdc.ingest.sources.mysql.types import MysqlType

KNOWN = {"id": 1, "a": 2, "b": 3}


def after(*actions: str, known: dict[str, int] | None = None) -> ColumnNames:
    """Return the names after some ALTER TABLEs."""
    known = KNOWN if known is None else known
    names = ColumnNames(known, dict.fromkeys(known, "int"))
    for action in actions:
        assert names.alter(effects(f"ALTER TABLE t {action}", "db", STRICT)[-1].change) is None
    return names


@pytest.mark.parametrize(
    ("actions", "expected"),
    [
        (["RENAME COLUMN A TO b, RENAME COLUMN b TO a"], {"id": 1, "b": 2, "a": 3}),
        (["CHANGE a c int", "CHANGE b a int, ADD b int", "CHANGE c C int"], {"id": 1, "C": 2, "a": 3, "b": 4}),
        (["DROP a, CHANGE b a int"], {"id": 1, "a": 3}),
        (["DROP COLUMN IF EXISTS z, ADD IF NOT EXISTS A int, RENAME COLUMN IF EXISTS z TO y"], KNOWN),
        (["ADD c int", "DROP c", "ADD c int"], {**KNOWN, "c": 5}),
    ],
)
def test_columns_keep_their_numbers(actions: list[str], expected: dict[str, int]) -> None:
    numbers = after(*actions).numbers
    assert [*numbers.items()] == [*expected.items()]


@pytest.mark.parametrize(
    ("known", "action", "why"),
    [
        (KNOWN, "CHANGE c d int", "which is unknown"),
        (KNOWN, "CHANGE a b int", "names that other columns have"),
        (KNOWN, "CHANGE a c int, ADD z int, CHANGE b C int", "names that other columns have"),
        ({}, "CHANGE a c int", "its columns before are unknown"),
        ({}, "CHANGE IF EXISTS a c int", "its columns before are unknown"),
    ],
)
def test_renames_that_cannot_be_followed_report_the_reason(known: dict[str, int], action: str, why: str) -> None:
    names = ColumnNames(known, dict.fromkeys("abc", "int"))
    assert why in str(names.alter(effects(f"ALTER TABLE t {action}", "db", STRICT)[-1].change))


@pytest.mark.parametrize(
    ("before", "definitions", "same"),
    [
        ("int", ["bigint", "bigint unsigned NOT NULL"], [True, False]),
        ("int", ["int", "smallint unsigned", "varchar(9)"], [True, True, False]),
        ("string", ["varchar(99)", "enum('a')", "int"], [True, True, False]),
        ("decimal(8,2)", ["decimal(12,2)", "decimal(10,2)", "decimal(12,4)"], [True, True, False]),
        ("decimal(8,2)", ["bigint"], [False]),
        ("float", ["double", "float"], [True, False]),
        ("timestamp_ntz", ["date"], [False]),
    ],
)
def test_values_remain_only_in_types_that_can_store_them(before: str, definitions: list[str], same: list[bool]) -> None:
    for numbers in (KNOWN, {}):
        names = ColumnNames(numbers, {"a": before})
        changes = [effects(f"ALTER TABLE t MODIFY A {d}", "db", STRICT)[-1].change for d in definitions]
        assert [names.alter(change) is None for change in changes] == same


def test_types_follow_renamed_columns_except_excluded_ones() -> None:
    names = ColumnNames(KNOWN, {"a": "int"}, {"B"})
    for action, same in [("CHANGE a c int", True), ("MODIFY b char(1)", True), ("MODIFY c varchar(9)", False)]:
        change = effects(f"ALTER TABLE t {action}, ALGORITHM=INPLACE", "db", STRICT)[-1].change
        assert (names.alter(change) is None) is same
    change = effects("ALTER TABLE t MODIFY id int", "db", STRICT)[-1].change
    assert "'id', whose values may have changed: it is int now and was of" in str(names.alter(change))


def test_rows_that_contradict_the_statements_are_refused() -> None:
    # the server renamed a column without logging it
    assert "'c' instead of 'a'" in str(after().described(["id", "c", "b"]))
    assert "'a' instead of 'c'" in str(after("CHANGE a c int").described(["id", "a", "b"]))
    names = after("ADD c int AFTER id")
    assert names.described(["id", "c", "a", "b", "hidden"]) is None
    assert names.numbers == {"id": 1, "c": 4, "a": 2, "b": 3, "hidden": 5} and names.added == [4]
    # nothing is known, so nothing contradicts it
    unknown = after("ADD c int", known={})
    assert unknown.described(["id", "c"]) is None and unknown.numbers == {"id": 2, "c": 1}


def named(*columns: str, base: str = "int") -> list[Named]:
    return [Named(name.strip("+"), MysqlType(base, name[0] == "+"), name[0] == "+") for name in columns]


def test_unnamed_columns_get_the_names_of_their_time() -> None:
    # the server is ahead of the log, in which a is yet to become c, and b to become a
    names = [column.name for column in after().unnamed(named("+id", "c", "a"))]
    assert names == ["id", "a", "b"]
    assert [c.name for c in after("CHANGE a c int").unnamed(named("+id", "c", "a"))] == ["id", "c", "b"]
    # as the order may have changed as well, either could be the unsigned one
    with pytest.raises(LayoutError, match="'a' was renamed; set binlog_row_metadata = FULL"):
        after().unnamed(named("id", "+c", "d"))
    now = named("id", "b", "a")
    assert after("MODIFY a int AFTER b").unnamed(now) is now, "an unknown order is the server's"
    assert after("ADD c int FIRST", known={}).unnamed(now) is now
