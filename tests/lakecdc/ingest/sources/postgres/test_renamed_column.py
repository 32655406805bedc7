"""A column renamed at the source keeps its field id, even with events from before and after in one batch."""

from __future__ import annotations

import pytest

from lakecdc.ingest.column_numbers import identified, renamed
from lakecdc.ingest.sources.postgres.feed import names_now
from tests.lakecdc.ingest.sources.model import differs, field_ids, run

from .conftest import Shop


def test_a_renamed_column_is_the_same_column(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY, a text, doc text, n int)")
    shop.sql("ALTER TABLE s.t ALTER doc SET STORAGE EXTERNAL")
    shop.sql("INSERT INTO s.t SELECT i, 'a' || i, repeat('x', 5000) || i, i FROM generate_series(1, 5) i")
    name = shop.target("t")
    run(shop)
    before = field_ids(shop, name)
    shop.sql("UPDATE s.t SET n = 10 WHERE id = 1")
    # a temporary name disappears, and a new column reuses the old name at once
    shop.sql("ALTER TABLE s.t ADD COLUMN a2 int; ALTER TABLE s.t RENAME a TO between")
    shop.sql("UPDATE s.t SET between = 'b3' WHERE id = 3")
    shop.sql("ALTER TABLE s.t RENAME between TO b; ALTER TABLE s.t RENAME doc TO text; ALTER TABLE s.t RENAME a2 TO a")
    shop.sql("UPDATE s.t SET b = 'new', a = 7 WHERE id = 2; INSERT INTO s.t VALUES (6, 'b6', 'short', 6, 6)")
    report = run(shop)[name]
    assert report.outcome == "done", report.reason
    assert report.metrics["schema_changes"] == ["renamed a to b", "renamed doc to text", "added a int"]
    assert not differs(shop, name, "id, b, text, n, a")
    after = field_ids(shop, name)
    assert (after["b"], after["text"]) == (before["a"], before["doc"])
    assert after["a"] not in before.values()


@pytest.mark.soak
def test_a_run_without_rows_does_not_add_a_renamed_column(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY, a text); INSERT INTO s.t VALUES (1, 'x'), (2, 'y')")
    name = shop.target("t")
    run(shop)
    before = field_ids(shop, name)
    # the log has the name only with the next rows
    shop.sql("ALTER TABLE s.t RENAME a TO b; ALTER TABLE s.t ADD c int")
    run(shop)
    assert set(field_ids(shop, name)) == {"id", "a", "c"}
    shop.sql("UPDATE s.t SET b = 'new' WHERE id = 1")
    run(shop)
    assert field_ids(shop, name)["b"] == before["a"]
    assert not differs(shop, name, "id, b, c")


def test_a_column_dropped_and_added_again_is_another_column(shop: Shop) -> None:
    for name in ("keeps", "drops", "quiet"):
        shop.sql(f"CREATE TABLE s.{name} (id int PRIMARY KEY, a int, b text)")
        shop.sql(f"INSERT INTO s.{name} VALUES (1, 1, 'x'), (2, 2, 'y'), (4, 4, 'w')")
    keeps, quiet = shop.target("keeps"), shop.target("quiet")
    drops = shop.target("drops", on_dropped_column="drop")
    run(shop)
    before = field_ids(shop, keeps)
    add_again = "ALTER TABLE s.{0} DROP COLUMN a; ALTER TABLE s.{0} ADD COLUMN a int"
    for name in ("keeps", "drops"):
        shop.sql(
            f"BEGIN; UPDATE s.{name} SET a = 11 WHERE id = 1; {add_again.format(name)};"
            f"INSERT INTO s.{name} VALUES (3, 'z', 33); COMMIT; UPDATE s.{name} SET b = 'yy' WHERE id = 2"
        )
    shop.sql(f"{add_again.format('quiet')} DEFAULT 7")
    reports = run(shop)
    assert {report.outcome for report in reports.values()} <= {"done", "nothing"}, reports
    assert reports[keeps].metrics["schema_changes"] == ["renamed a to a_dropped", "added a int"]
    for name in (keeps, drops, quiet):
        assert not differs(shop, name, "id, b, a"), name
    after = field_ids(shop, keeps)
    assert after["a_dropped"] == before["a"] and after["a"] not in before.values()
    assert {*field_ids(shop, drops)} == {"id", "b", "a"}
    assert (4, 4) in shop.lake.duckdb_rows(keeps, "id, a_dropped"), "a column dropped at the source is kept"
    shop.sql("UPDATE s.keeps SET a = 5 WHERE id = 4; UPDATE s.quiet SET a = 6 WHERE id = 4")
    run(shop)
    assert not differs(shop, keeps, "id, b, a") and not differs(shop, quiet, "id, b, a")


def test_later_names_of_a_batchs_columns_are_known() -> None:
    before, last = {"id": 1, "a": 2, "b": 3, "c": 4}, {"id": 1, "b2": 3, "c": 4, "a": 5}
    assert names_now([before, last]) == [{"a": "", "b": "b2"}, {}]


@pytest.mark.parametrize(
    ("names", "catalog", "numbers"),
    [
        # the catalog is ahead: the log still has the old name, which a new column has reused
        (["id", "a"], {"id": 1, "b": 2, "a": 3}, {"id": 1, "a": 2}),
        (["id", "b", "a"], {"id": 1, "b": 2, "a": 3}, {"id": 1, "b": 2, "a": 3}),
        (["id", "b"], {"id": 1, "c": 2}, {"id": 1, "b": 2}),
        (["id", "b", "x"], {"id": 1, "c": 2}, {"id": 1, "b": None, "x": None}),
        # the order shows swapped names
        (["id", "a"], {"a": 1, "id": 2}, {"id": 1, "a": 2}),
        (["a", "id"], {"a": 1, "id": 2}, {"a": 1, "id": 2}),
        # a was dropped and added again
        (["id", "k", "a"], {"id": 1, "k": 3, "a": 4}, {"id": 1, "k": 3, "a": 4}),
    ],
)
def test_columns_keep_their_numbers_while_the_catalog_is_ahead(
    names: list[str], catalog: dict[str, int | None], numbers: dict[str, int | None]
) -> None:
    assert identified(names, {"id": 1, "a": 2}, catalog) == numbers


def test_swapped_names_are_not_followed() -> None:
    assert renamed({"a": 1, "b": 2}, {"a": 2, "b": 1}) == {}
    assert renamed({"a": 1, "b": None}, {"c": 1, "b": None}) == {"a": "c"}
