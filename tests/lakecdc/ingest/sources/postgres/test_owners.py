"""A slot belongs to one set of tables, and keeps its log for those that a run omits."""

from __future__ import annotations

from typing import Any

import pytest

from lakecdc.contract.errors import InputError
from lakecdc.contract.spec import Catalog
from lakecdc.contract.target import Target
from lakecdc.ingest.sources.postgres.owners import Owner, check
from tests.lakecdc.ingest.sources.model import differs, run

from .conftest import Shop
from .test_slot import confirmed, insert, tables


def owner(place: str = "x", **targets: str) -> Owner:
    return Owner("lake", place, targets)


def refused(known: Owner, mine: Owner, *there: str) -> str | None:
    try:
        check("slot", "pub", known, mine, lambda name: name in there)
    except InputError as error:
        return str(error)
    return None


def test_a_changed_list_of_tables_is_the_same_owner() -> None:
    known = owner(a="shop.a", b="shop.b")
    assert not refused(known, owner(a="shop.a"), "shop.a", "shop.b")
    assert not refused(known, owner(b="shop.b", c="shop.c"), "shop.a", "shop.b")
    assert not refused(known, owner(a="shop.renamed", b="shop.b"), "shop.a", "shop.b")
    assert not refused(known, owner(c="shop.c")), "no table is shared with the former owner"
    assert owner(c="shop.c").joined(known, {"a", "c"}).targets == {"a": "shop.a", "c": "shop.c"}


@pytest.mark.parametrize("mine", [owner(a="dev.a"), owner(c="shop.c"), owner("y", a="shop.a", b="shop.b")])
def test_another_set_of_tables_is_refused_by_name(mine: Owner) -> None:
    text = refused(owner(a="shop.a", b="shop.b"), mine, "shop.b")
    assert text and "'slot' feeds shop.a, shop.b of the catalog 'lake'" in text
    assert ("another catalog of that name" in text) == (mine.place == "y")


def test_a_login_is_not_part_of_a_catalog() -> None:
    def place(uri: str) -> str:
        return Owner.of(Catalog("lake", {"uri": uri}), [Target("shop.a")]).place

    assert place("postgresql://u:old@h/d") == place("postgresql://v:new@h/d") != place("postgresql://u:old@h/e")


def test_a_run_over_some_targets_keeps_the_log_for_the_others(shop: Shop) -> None:
    one, other = tables(shop, "one", "other")
    run(shop)
    slot_before, targets = confirmed(shop), shop.targets
    insert(shop, "one", 1)
    insert(shop, "other", 1)
    shop.targets = targets[:1]
    (report,) = run(shop).values()
    assert (report.outcome, report.metrics["slot_held_for"], confirmed(shop)) == ("done", [other], slot_before)
    shop.targets = targets
    assert {r.outcome for r in run(shop).values()} == {"nothing", "done"}
    assert not differs(shop, one, "id, v") and not differs(shop, other, "id, v") and confirmed(shop) > slot_before
    shop.targets, slot_before = targets[:1], confirmed(shop)
    shop.lake.sql(f"DROP TABLE lake.{other}")
    insert(shop, "one", 2)
    run(shop)
    assert confirmed(shop) > slot_before, "a missing table needs a full load anyway"


def test_the_log_of_omitted_tables_is_kept_up_to_the_limit(shop: Shop) -> None:
    tables(shop, "one", "other")
    run(shop)
    slot_before, shop.targets = confirmed(shop), shop.targets[:1]
    insert(shop, "one", *range(1, 9))
    run(shop, max_slot_lag_bytes=10**9)
    assert confirmed(shop) == slot_before
    run(shop, max_slot_lag_bytes=100)
    assert confirmed(shop) > slot_before


def test_a_second_set_of_tables_is_refused(shop: Shop) -> None:
    (one,) = tables(shop, "one")
    shop.sql(f"CREATE PUBLICATION {shop.schema} WITH (publish_via_partition_root = true)")
    shop.sql(f"COMMENT ON PUBLICATION {shop.schema} IS 'of the shop'")
    run(shop)
    insert(shop, "one", 1)
    slot_before, targets = confirmed(shop), shop.targets
    shop.targets = [{"table": f"{shop.schema}.copy", "source_table": one}]
    with pytest.raises(InputError, match=f"feeds {one} of the catalog 'lake'"):
        run(shop)
    assert confirmed(shop) == slot_before
    shop.targets = targets
    tables(shop, "two")
    assert {r.outcome for r in run(shop).values()} == {"done"}
    ((comment,),) = shop.sql(
        f"SELECT obj_description(oid, 'pg_publication') FROM pg_publication WHERE pubname = '{shop.schema}'"
    )
    assert comment.startswith("of the shop") and f"{shop.schema}.two" in comment
    assert shop.lake.properties["uri"] not in comment


@pytest.mark.parametrize("parked", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_a_table_with_unreadable_metadata_holds_the_slot(shop: Shop, parked: bool) -> None:
    good, bad = tables(shop, "good", "bad")
    if parked:
        shop.lake.sql("CREATE NAMESPACE IF NOT EXISTS lake.elsewhere")
        shop.targets[0] |= {"table": f"elsewhere.{shop.schema}", "source_table": good}
    run(shop)
    broken = bad
    if parked:
        broken = f"{shop.schema}.lakecdc_parked"
        shop.lake.sql(f"CREATE TABLE lake.{broken} (target string, through bigint, kind string)")
    slot_before = confirmed(shop)
    insert(shop, "good", 1)
    insert(shop, "bad", 1)
    restore = shop.lake.break_metadata(broken)
    reports: list[Any] = [*run(shop).values()]
    assert [r.outcome for r in reports] == ["done", "failed"] and "Cannot load the table" in str(reports[1].reason)
    assert confirmed(shop) == slot_before
    restore()
    if parked:
        shop.lake.sql(f"DROP TABLE lake.{broken}")
    run(shop)
    assert not differs(shop, bad, "id, v") and confirmed(shop) > slot_before
