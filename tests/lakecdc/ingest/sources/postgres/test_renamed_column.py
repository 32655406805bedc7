"""A column renamed at the source keeps its field id, in events from before and after in one batch as well."""

from __future__ import annotations

import pytest

from lakecdc.ingest.column_numbers import identified, renamed

from .conftest import Shop
from .test_job import differs, run


def field_ids(shop: Shop, name: str) -> dict[str, int]:
    fields = shop.lake.pyiceberg().load_table(name).schema().fields
    return {f.name: f.field_id for f in fields if not f.name.startswith("_")}


def test_a_renamed_column_is_the_same_column(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY, a text, doc text, n int)")
    shop.sql("ALTER TABLE s.t ALTER doc SET STORAGE EXTERNAL")
    shop.sql("INSERT INTO s.t SELECT i, 'a' || i, repeat('x', 5000) || i, i FROM generate_series(1, 5) i")
    name = shop.target("t")
    run(shop)
    before = field_ids(shop, name)
    shop.sql("UPDATE s.t SET n = 10 WHERE id = 1")
    # a name in between, of which nothing is left, and the old name is given to a new column at once
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


def test_a_run_without_rows_takes_a_new_name_for_no_new_column(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY, a text); INSERT INTO s.t VALUES (1, 'x'), (2, 'y')")
    name = shop.target("t")
    run(shop)
    before = field_ids(shop, name)
    # the log tells the name with the next rows only
    shop.sql("ALTER TABLE s.t RENAME a TO b; ALTER TABLE s.t ADD c int")
    run(shop)
    assert set(field_ids(shop, name)) == {"id", "a", "c"}
    shop.sql("UPDATE s.t SET b = 'new' WHERE id = 1")
    run(shop)
    assert field_ids(shop, name)["b"] == before["a"]
    assert not differs(shop, name, "id, b, c")


@pytest.mark.parametrize(
    ("found", "catalog", "numbers"),
    [
        # the catalog is ahead: the log still has the old name, which a new column has taken meanwhile
        (["id", "a"], {"id": 1, "b": 2, "a": 3}, {"id": 1, "a": 2}),
        (["id", "b", "a"], {"id": 1, "b": 2, "a": 3}, {"id": 1, "b": 2, "a": 3}),
        (["id", "b"], {"id": 1, "c": 2}, {"id": 1, "b": 2}),
        (["id", "b", "x"], {"id": 1, "c": 2}, {"id": 1, "b": None, "x": None}),
        # names that change places are told by the order
        (["id", "a"], {"a": 1, "id": 2}, {"id": 1, "a": 2}),
        (["a", "id"], {"a": 1, "id": 2}, {"a": 1, "id": 2}),
        # a was dropped and made anew
        (["id", "k", "a"], {"id": 1, "k": 3, "a": 4}, {"id": 1, "k": 3, "a": 4}),
    ],
)
def test_numbers_while_the_catalog_is_ahead(
    found: list[str], catalog: dict[str, int | None], numbers: dict[str, int | None]
) -> None:
    assert identified(found, {"id": 1, "a": 2}, catalog) == numbers


def test_names_that_change_places_are_not_followed() -> None:
    assert renamed({"a": 1, "b": 2}, {"a": 2, "b": 1}) == {}
    assert renamed({"a": 1, "b": None}, {"c": 1, "b": None}) == {"a": "c"}
